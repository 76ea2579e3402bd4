;; W11: drops a resource twice.
(func $next (export "weir:plugin/adapter@0.1.0#[method]exchange.next") (param $self i32) (result i32)
  (local $handle i32)
  (local.set $handle (call $resource_new (i32.const 7)))
  (call $resource_drop (local.get $handle))
  (call $resource_drop (local.get $handle))
  (i32.const 160))
