// SPDX-License-Identifier: Apache-2.0

package items

import (
	"errors"

	"github.com/caisson-os/caisson/spec"
)

// failure is an error of a run with what it is about.
type failure struct {
	item, key string
	err       error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed says of an error what it is about; the key only where it can be no other.
func failed(item string, what []spec.Drift, err error) error {
	if err == nil {
		return nil
	}
	f := &failure{item: item, err: err}
	if len(what) == 1 {
		f.key = what[0].Key
	}
	return f
}

// About says of an error of a run which kind it is about.
func About(item string, err error) error { return failed(item, nil, err) }

// Culprit returns what the first error of a run is about, "" where that is not known.
func Culprit(err error) (item, key string) {
	var f *failure
	if !errors.As(err, &f) {
		return "", ""
	}
	return f.item, f.key
}
