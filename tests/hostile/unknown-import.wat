;; Imports an interface that nobody offers.
(import "evil:host/api@1.0.0" "take-over" (func $take_over))
(func $end (export "weir:plugin/adapter@0.2.0#[method]exchange.end") (param $self i32) (result i32)
  (call $take_over)
  (i32.const 896))
