"""Programs that speak the protocol of `docs/other-matchers.md` for matchers from package registries."""
