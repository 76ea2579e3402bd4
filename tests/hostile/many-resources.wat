;; W10: makes 10^6 resources and drops none; without a limit it would answer.
(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (local $made i32)
  (loop $again
    (drop (call $resource_new (local.get $made)))
    (local.set $made (i32.add (local.get $made) (i32.const 1)))
    (br_if $again (i32.lt_u (local.get $made) (i32.const 1_000_000))))
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.const 256))
