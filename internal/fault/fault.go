// SPDX-License-Identifier: Apache-2.0

// Package fault hands errors on: with what was being done, without those that are not wrong here, or
// said where nothing ends by them. Nil stays nil, so that the last call of a function can be
// returned as it is.
//
// It words no error of its own and knows none. Everything may import it.
package fault

import (
	"errors"
	"fmt"
	"slices"
)

// In returns err behind what was being done, as in `unmount /mnt: device or resource busy`.
func In(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// But returns err unless it is one of others: that a file is not there is not wrong where it is
// to be removed.
func But(err error, others ...error) error {
	if slices.ContainsFunc(others, func(other error) bool { return errors.Is(err, other) }) {
		return nil
	}
	return err
}

// Say says err, unless it is nil.
func Say(say func(format string, args ...any), err error) {
	if err != nil {
		say("%v", err)
	}
}
