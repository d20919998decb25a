// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// TestCredentialsThatAreNone: a pipe or a link on the state disk, in the place of a
// file, is an error and soon.
func TestCredentialsThatAreNone(t *testing.T) {
	for _, name := range []string{"auth.json", "client.crt", "client.key"} {
		for what, place := range map[string]func(string) error{
			"pipe":         func(name string) error { return syscall.Mkfifo(name, 0o600) },
			"link to /dev": func(name string) error { return os.Symlink("/dev/zero", name) },
			"link to a key": func(name string) error {
				return errors.Join(os.WriteFile(name+".x", []byte("{}"), 0o600), os.Symlink(name+".x", name))
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				dir := t.TempDir()
				if err := place(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				done := inBackground(func() error {
					_, err := track.Open(spec.Bootstrap{Registry: "127.0.0.1:1"}, track.Way{Credentials: dir, Silence: time.Second})
					return err
				})
				select {
				case err := <-done:
					if err == nil {
						t.Error("it was taken")
					}
				case <-time.After(time.Minute):
					t.Error("it waits")
				}
			})
		}
	}
}

func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
