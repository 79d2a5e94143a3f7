"""What was tried and fitted on the way; nothing here is installed with ngramkit."""
