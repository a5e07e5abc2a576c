"""The parts of a replay: what is drawn, shown, measured and said."""
