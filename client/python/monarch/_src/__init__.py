"""Private modules that existing programs import; no logic here."""
