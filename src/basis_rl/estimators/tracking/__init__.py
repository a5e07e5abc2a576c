"""What the estimators that follow each prompt share."""
