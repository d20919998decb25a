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
// regular file, not reached by a link, that only its owner can read, and whose
// owner is this user, root, or who called sudo. It is the one rule for all secrets
// that either program reads.
func ReadSecret(name string) ([]byte, error) {
	f, err := openSecret(name)
	if err != nil {
		return nil, err
	}
	return readAll(f, maxSecret)
}

// CheckSecret returns the error that [ReadSecret] would, and reads nothing.
func CheckSecret(name string) error {
	f, err := openSecret(name)
	if err != nil {
		return err
	}
	return f.Close()
}

func openSecret(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
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

func judge(name string, info os.FileInfo) error {
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return &SecretError{name, "it is not a regular file", "name the file itself"}
	case mode.Perm()&0o077 != 0:
		return &SecretError{name, fmt.Sprintf("its mode %04o lets others read it: chmod 600", mode.Perm()), "chmod 600 " + name}
	case !mine(owner(info)):
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
