"""The tables and figures of the five published systems, each by one name: run again here, beside what is printed."""
