"""What the trainers' adapters share; no trainer is imported here."""
