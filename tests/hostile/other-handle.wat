;; W11: begins with a handle of another type, that of its standard output.
(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $get_stdout (result i32)))
(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (i32.store (i32.const 260) (call $get_stdout))
  (i32.const 256))
