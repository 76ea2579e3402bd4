;; W2: never comes out of the core module's start function.
(func $start
  (loop $again (br $again)))
(start $start)
