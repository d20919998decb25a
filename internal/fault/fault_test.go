// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

func TestInKeepsTheErrorAndNil(t *testing.T) {
	if err := In(nil, "read %s", "a file"); err != nil {
		t.Errorf("no error became %v", err)
	}
	_, missing := os.Open(t.TempDir() + "/none")
	err := In(missing, "read %q", "100%")
	if want := `read "100%": ` + missing.Error(); err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	var path *fs.PathError
	if errors.Unwrap(err) != missing || !errors.As(err, &path) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not wrap its error", err)
	}
}

func TestButLeavesOutWhatIsNotWrong(t *testing.T) {
	busy := fmt.Errorf("remove a directory: %w", syscall.ENOTEMPTY)
	for _, c := range []struct {
		err    error
		others []error
		want   error
	}{
		{nil, []error{fs.ErrNotExist}, nil},
		{busy, nil, busy},
		{busy, []error{fs.ErrNotExist}, busy},
		{busy, []error{fs.ErrNotExist, syscall.ENOTEMPTY}, nil},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, []error{fs.ErrNotExist}, nil},
	} {
		if got := But(c.err, c.others...); got != c.want {
			t.Errorf("%v but %v is %v, want %v", c.err, c.others, got, c.want)
		}
	}
}

func TestSaySaysErrorsAlone(t *testing.T) {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	Say(say, nil)
	Say(nil, nil)
	Say(say, In(syscall.EIO, "close %s", "100%"))
	if want := "close 100%: " + syscall.EIO.Error(); len(said) != 1 || said[0] != want {
		t.Errorf("said %q, want %q alone", said, want)
	}
}
