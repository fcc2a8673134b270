"""TagMatch: subset matching of tag sets by signatures (Rogora et al., EuroSys 2017)."""
