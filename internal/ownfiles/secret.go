// SPDX-License-Identifier: Apache-2.0

package ownfiles

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// maxSecret is above every key, password file and list of credentials.
const maxSecret = 1 << 20

// ReadSecret returns what a file with a key, a password or a token holds: a
// regular file, not reached by a link, that only its owner can read, and whose owner
// is this user, root, or who called sudo. Of root's files, those count as well that
// root lets a group of this user read. It is the one rule for all secrets that either
// program reads.
func ReadSecret(name string) ([]byte, error) {
	f, err := openSecret(name, name, judgeSecret)
	if err != nil {
		return nil, err
	}
	return readAll(f, maxSecret)
}

// ReadLinked is ReadSecret for people's machines: it follows links that no other user can
// have put or can change, as Kubernetes mounts a secret. On a node an attacker who had the
// state disk in hand can have put a link of root's.
func ReadLinked(name string) ([]byte, error) {
	f, err := openLinked(name, judgeSecret)
	if err != nil {
		return nil, err
	}
	return readAll(f, maxSecret)
}

// ReadConfig returns what a file holds that other programs write and read, too, and
// that may name programs to run: no other user may be able to change it. It is reached by
// links as for [ReadLinked], and reports whether others can read it.
func ReadConfig(name string) (data []byte, readable bool, err error) {
	f, err := openLinked(name, judgeConfig)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	data, err = readAll(f, maxSecret)
	return data, info.Mode().Perm()&0o044 != 0, err
}

// CheckLinked returns the error that [ReadLinked] would, and reads nothing.
func CheckLinked(name string) error {
	f, err := openLinked(name, judgeSecret)
	if err != nil {
		return err
	}
	return f.Close()
}

func openLinked(name string, judge func(string, os.FileInfo) error) (*os.File, error) {
	at, err := direct(name)
	if err != nil {
		return nil, err
	}
	return openSecret(name, at, judge)
}

// openSecret opens the file at a path, which errors call by its name.
func openSecret(name, at string, judge func(string, os.FileInfo) error) (*os.File, error) {
	f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &SecretError{name, "it is a link", "name the file itself"}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = judge(name, info)
	}
	if err != nil {
		_ = f.Close() // err says what is wrong
		return nil, err
	}
	return f, nil
}

func judgeSecret(name string, info os.FileInfo) error {
	perm := info.Mode().Perm()
	if of := owner(info); of == 0 && os.Geteuid() != 0 && perm&0o037 == 0 {
		perm &= 0o700 // root gave it to the group on purpose: else this user could not read it
	}
	switch {
	case !info.Mode().IsRegular():
		return &SecretError{name, "it is not a regular file", "name the file itself"}
	case perm&0o077 != 0:
		return &SecretError{name, fmt.Sprintf("its mode %04o lets others read it: chmod 600", perm), "chmod 600 " + name}
	}
	return judgeOwner(name, info)
}

func judgeConfig(name string, info os.FileInfo) error {
	switch perm := info.Mode().Perm(); {
	case !info.Mode().IsRegular():
		return &SecretError{name, "it is not a regular file", "name the file itself"}
	case perm&0o022 != 0:
		return &SecretError{name, fmt.Sprintf("its mode %04o lets others change it", perm), "chmod go-w " + name}
	}
	return judgeOwner(name, info)
}

func judgeOwner(name string, info os.FileInfo) error {
	if !mine(owner(info)) {
		return &SecretError{name, fmt.Sprintf("it belongs to user %d, who could change it", owner(info)), "chown it to the user who runs this"}
	}
	return nil
}

func mine(uid int) bool {
	if uid == os.Geteuid() || uid == 0 {
		return true
	}
	caller, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	return os.Geteuid() == 0 && err == nil && uid == caller
}

// SecretError says why a file with a secret is not used.
type SecretError struct{ name, why, hint string }

func (e *SecretError) Error() string { return e.name + ": " + e.why }

// Hint returns what the file's owner can do about it.
func (e *SecretError) Hint() string { return e.hint }
