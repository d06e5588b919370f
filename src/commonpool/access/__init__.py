"""Who may do what on the control plane: callers, roles as Cedar policies, people, and the audit log."""
