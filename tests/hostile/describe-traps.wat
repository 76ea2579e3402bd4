;; W14: traps when asked what it is.
(func $describe (export "weir:plugin/adapter@0.2.0#describe") (result i32)
  unreachable)
