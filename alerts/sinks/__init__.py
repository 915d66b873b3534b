"""Where people are told of alerts: each module formats and sends, one kind of place each. Found by themselves."""
