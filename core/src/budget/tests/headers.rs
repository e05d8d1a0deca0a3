//! What headers do to budgets.
