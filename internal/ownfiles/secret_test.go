// SPDX-License-Identifier: Apache-2.0

package ownfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadSecret(t *testing.T) {
	write := func(mode os.FileMode) func(string) error {
		return func(name string) error {
			return errors.Join(os.WriteFile(name, []byte("s"), 0o600), os.Chmod(name, mode))
		}
	}
	for what, c := range map[string]struct {
		make func(name string) error
		want string // "" is good
	}{
		"closed":             {write(0o600), ""},
		"for reading only":   {write(0o400), ""},
		"readable by others": {write(0o644), "chmod 600"},
		"readable by group":  {write(0o640), "chmod 600"},
		"a link":             {func(name string) error { return errors.Join(write(0o600)(name+".to"), os.Symlink(name+".to", name)) }, "name the file itself"},
		"a pipe":             {func(name string) error { return syscall.Mkfifo(name, 0o600) }, "name the file itself"},
		"a directory":        {func(name string) error { return os.Mkdir(name, 0o700) }, "name the file itself"},
		"too large":          {func(name string) error { return os.WriteFile(name, make([]byte, maxSecret+1), 0o600) }, "more than"},
		"of somebody else": {func(name string) error {
			if os.Geteuid() != 0 {
				return syscall.ENOTSUP // only root can give a file away
			}
			return errors.Join(write(0o600)(name), os.Chown(name, 12345, -1))
		}, "chown"},
	} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "key")
			if err := c.make(name); errors.Is(err, syscall.ENOTSUP) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			data, err := ReadSecret(name)
			if c.want == "" {
				if err != nil || string(data) != "s" {
					t.Errorf("%q, %v", data, err)
				}
				return
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if hinted := (*SecretError)(nil); errors.As(err, &hinted) {
				text += hinted.Hint()
			}
			if !strings.Contains(text, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("of who called sudo", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("needs root")
		}
		t.Setenv("SUDO_UID", "12345")
		name := filepath.Join(t.TempDir(), "key")
		if err := errors.Join(write(0o600)(name), os.Chown(name, 12345, -1)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(name); err != nil {
			t.Error(err)
		}
	})
}
