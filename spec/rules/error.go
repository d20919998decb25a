// SPDX-License-Identifier: Apache-2.0

// Package rules says what a valid value is: one parser, one wording and one wire
// form for modes, names, paths, limits, mounts, kernel parameters, credentials and scripts.
//
// A site checks with it what an author wrote, the builder and the node check with
// it what they were given, so that "valid" means the same to all three. It does
// not say what is wise (spec/site warns of that) nor what a machine has: a user,
// a device or a program that is missing is found where it is needed. A rule may
// be relaxed; one that is tightened makes nodes refuse overlays that are signed
// already.
//
// The package is pure: it imports spec and the standard library, reads no file
// and asks no system. Everything above spec may import it.
package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error describes the fault of one value.
type Error struct {
	Field   string // of a value that has several, as package spec spells it in JSON; else ""
	Rule    string // a word that stays the same, for tools
	Message string
	Hint    string   // what would be right, or ""
	Value   string   // as it was given, where Words is not nil
	Words   []string // of which it has to be one
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Errors holds every problem of one value that has several fields.
type Errors []*Error

func (e Errors) Error() string {
	var texts []string
	for _, one := range e {
		texts = append(texts, one.Error())
	}
	return strings.Join(texts, "; ")
}

// All returns the problems that a function of this package returned.
func All(err error) []*Error {
	if list, ok := errors.AsType[Errors](err); ok {
		return list
	}
	if one, ok := errors.AsType[*Error](err); ok {
		return []*Error{one}
	}
	return nil
}

// Given counts those that are given, of values of which one belongs there.
func Given(values ...bool) (n int) {
	for _, given := range values {
		if given {
			n++
		}
	}
	return n
}

// invalid returns an error of one value.
func invalid(rule, hint, format string, args ...any) error {
	return &Error{Rule: rule, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// refuse returns an error of one value where that is wrong, else nil.
func refuse(wrong bool, rule, hint, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return invalid(rule, hint, format, args...)
}

// oneOf checks a value that has to be one of a few words; what describes them.
func oneOf[T ~string](value T, what string, words []T) error {
	if slices.Contains(words, value) {
		return nil
	}
	var texts []string
	for _, w := range words {
		texts = append(texts, string(w))
	}
	return &Error{Rule: "enum", Value: string(value), Words: texts, Message: fmt.Sprintf("%.80q is not %s", value, what)}
}

// fields collects the problems of a value's fields.
type fields struct{ list Errors }

// add notes err, if there is one, for a field.
func (f *fields) add(field string, err error) {
	for _, e := range All(err) {
		e.Field = field
		f.list = append(f.list, e)
	}
}

// given notes what check finds wrong with a field that is given.
func (f *fields) given(field, value string, check func(string) error) {
	if value != "" {
		f.add(field, check(value))
	}
}

// err returns the problems, or nil.
func (f *fields) err() error {
	if len(f.list) == 0 {
		return nil
	}
	return f.list
}
