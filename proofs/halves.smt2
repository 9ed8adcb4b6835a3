; The two halves of a gated w13: each is padded by itself.

; formula round-up of plan::arith::round_up: the padded width of a half
(define-fun round-up ((n Int) (a Int)) Int
  (* (ite (= (mod n a) 0) (div n a) (+ (div n a) 1)) a))

; formula rows of plan::sizes::formula: rows of w13 under a rule of consistent sizes
(define-fun rows ((halves Int) (width Int)) Int (* halves width))

; lemma halves-are-consistent: Half of the padded rows is one padded half: it holds the logical half, and both halves begin aligned.
(push)
(declare-const n Int) (declare-const a Int) (declare-const p Int)
(assert (and (>= n 0) (> a 0) (= p (round-up n a))))
(assert (not (and (= (div (rows 2 p) 2) p) (= (mod (rows 2 p) 2) 0)
                  (<= n (div (rows 2 p) 2)) (= (mod (div (rows 2 p) 2) a) 0))))
(check-sat) ; unsat
(pop)

; lemma halves-do-not-meet: Padded apart, gate row j and up row k never share a row of w13, and both are rows of it.
(push)
(declare-const n Int) (declare-const a Int) (declare-const p Int) (declare-const j Int) (declare-const k Int)
(assert (and (>= n 0) (> a 0) (= p (round-up n a)) (<= 0 j) (< j n) (<= 0 k) (< k n)))
(assert (not (and (not (= j (+ p k))) (< j (rows 2 p)) (< (+ p k) (rows 2 p)))))
(check-sat) ; unsat
(pop)

; lemma padding-both-as-one-misplaces: Rows padded once at the end of both halves and then halved begin the up half elsewhere.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (> n 0) (> a 0) (= (mod (round-up (* 2 n) a) 2) 0)))
(assert (not (= (div (round-up (* 2 n) a) 2) n)))
(check-sat) ; sat
(pop)

; lemma padding-both-as-one-misaligns: Rows padded once for both halves may halve to a width that is not aligned.
(push)
(declare-const n Int)
(assert (> n 0))
(assert (not (= (mod (div (round-up (* 2 n) 128) 2) 128) 0)))
(check-sat) ; sat
(pop)

; lemma aligning-half-is-enough-for-both: Rows of two aligned halves are aligned to the granule too.
(push)
(declare-const n Int) (declare-const a Int)
(assert (and (>= n 0) (> a 0)))
(assert (not (= (mod (rows 2 (round-up n a)) a) 0)))
(check-sat) ; unsat
(pop)
