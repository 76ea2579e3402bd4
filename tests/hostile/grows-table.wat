;; W5: grows a table to 2^31 elements; answers if it gets them, traps if it is refused.
(table $table 0 funcref)
(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (if (i32.eq (table.grow $table (ref.null func) (i32.const 0x80000000)) (i32.const -1))
    (then unreachable))
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.const 256))
