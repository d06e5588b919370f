"""Alerts without another program: what is wrong is found, told to channels, told again, and told when it is over."""
