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
		"a link":             {func(name string) error { return errors.Join(write(0o600)(name+".to"), os.Symlink(name+".to", name)) }, ""},
		"a link of a link": {func(name string) error {
			return errors.Join(os.Symlink("links", name), os.Symlink("key", filepath.Join(filepath.Dir(name), "links")))
		}, "too many links"},
		"a link to what others can read": {func(name string) error { return errors.Join(write(0o644)(name+".to"), os.Symlink(name+".to", name)) }, "chmod 600"},
		"a link in a directory of everybody": {func(name string) error {
			return errors.Join(write(0o600)(name+".to"), os.Symlink(name+".to", name), os.Chmod(filepath.Dir(name), 0o777))
		}, "others can change"},
		"a link into a directory of everybody": {func(name string) error {
			open := filepath.Join(filepath.Dir(name), "open")
			return errors.Join(os.Mkdir(open, 0o700), write(0o600)(filepath.Join(open, "key")), os.Symlink("open/key", name), os.Chmod(open, 0o777))
		}, "others can change"},
		"as Kubernetes mounts it": {func(name string) error {
			dir := filepath.Dir(name)
			return errors.Join(os.Mkdir(filepath.Join(dir, "..2026"), 0o755), write(0o400)(filepath.Join(dir, "..2026", "key")),
				os.Symlink("..2026", filepath.Join(dir, "..data")), os.Symlink("..data/key", name), os.Chmod(dir, os.ModeSticky|0o777))
		}, ""},
		"a pipe":      {func(name string) error { return syscall.Mkfifo(name, 0o600) }, "name the file itself"},
		"a directory": {func(name string) error { return os.Mkdir(name, 0o700) }, "name the file itself"},
		"too large":   {func(name string) error { return os.WriteFile(name, make([]byte, maxSecret+1), 0o600) }, "more than"},
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
			data, err := ReadLinked(name)
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

func TestReadConfig(t *testing.T) {
	for mode, want := range map[os.FileMode]struct{ readable, fails bool }{
		0o600: {}, 0o644: {readable: true}, 0o640: {readable: true}, 0o666: {fails: true}, 0o620: {fails: true},
	} {
		name := filepath.Join(t.TempDir(), "config.json")
		if err := errors.Join(os.WriteFile(name, []byte("c"), 0o600), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
		data, readable, err := ReadConfig(name)
		if (err != nil) != want.fails || err == nil && (string(data) != "c" || readable != want.readable) {
			t.Errorf("mode %04o: %q, readable %v, %v", mode, data, readable, err)
		}
	}
}

// TestReadSecretFollowsNoLink: on a state disk anybody can have put one of root's.
func TestReadSecretFollowsNoLink(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(name+".to", []byte("s"), 0o600), os.Symlink(name+".to", name)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSecret(name); err == nil || !strings.Contains(err.Error(), "it is a link") {
		t.Errorf("a link was followed: %v", err)
	}
}
