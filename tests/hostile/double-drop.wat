;; W11: drops a resource twice.
(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (local $handle i32)
  (local.set $handle (call $resource_new (i32.const 7)))
  (call $resource_drop (local.get $handle))
  (call $resource_drop (local.get $handle))
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.const 256))
