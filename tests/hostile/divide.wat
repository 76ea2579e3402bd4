;; W14: divides by zero. (Rust would panic first.)
(global $zero (mut i32) (i32.const 0))
(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (i32.div_s (i32.const 256) (global.get $zero)))
