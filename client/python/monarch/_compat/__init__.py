"""What stands behind `monarch._src` and `monarch._rust_bindings`: small adapters on our own types."""
