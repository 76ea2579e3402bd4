;; W5: grows a table to 2^31 elements; answers if it gets them, traps if it is refused.
(table $table 0 funcref)
(func $next (export "weir:plugin/adapter@0.1.0#[method]exchange.next") (param $self i32) (result i32)
  (if (i32.eq (table.grow $table (ref.null func) (i32.const 0x80000000)) (i32.const -1))
    (then unreachable))
  (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
  (select (i32.const 160) (i32.const 640) (i32.eq (global.get $turn) (i32.const 1))))
