"""Web pages: server-rendered, for a person at a desk, on a phone, or woken at night."""
