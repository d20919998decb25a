// SPDX-License-Identifier: Apache-2.0

// Package refusal names every reason for which caisson does not believe
// something that came from outside.
//
// A refusal is not a failure: a registry that is down is an error and is asked
// again, a registry that lies is refused. Each [Code] has one meaning, one line
// in docs/refusals.md and one hint, and programs may rely on its spelling: it is
// what the command line prints, what status shows after "refused:", and what
// the attack corpus expects.
//
// It imports the standard library only. oci, oci/sign and trust
// return its errors; anyone may read them through the methods.
package refusal

import (
	"errors"
	"fmt"
)

// Code is the stable name of a reason.
type Code string

// Refusal is the error: a code, what was seen, and what to do about it.
type Refusal struct {
	Code Code
	What string // what was seen, for people
	Err  error  // the cause, may be nil
}

// New returns a refusal.
func New(code Code, format string, args ...any) *Refusal {
	err := fmt.Errorf(format, args...)
	return &Refusal{Code: code, What: err.Error(), Err: errors.Unwrap(err)}
}

func (r *Refusal) Error() string { return r.What }
func (r *Refusal) Unwrap() error { return r.Err }

// RefusalCode is the code as text, for internal/cli and for status.
func (r *Refusal) RefusalCode() string { return string(r.Code) }

// Hint says what an operator can do about it: what the cause says, where that is not a
// refusal and says something, since it knows more than the code.
func (r *Refusal) Hint() string {
	var cause interface{ Hint() string }
	if errors.As(r.Err, &cause) {
		if _, refused := cause.(*Refusal); !refused {
			return cause.Hint()
		}
	}
	return meanings[r.Code].hint
}

// Of returns the code of err, or "" when err is not a refusal.
func Of(err error) Code {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

// OfKeys reports whether err refuses who signed.
func OfKeys(err error) bool {
	code := Of(err)
	return code == UnknownKey || code == Threshold
}
