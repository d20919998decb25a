// SPDX-License-Identifier: Apache-2.0

// Package ownfiles keeps what the agent verifies from being changed behind its
// back. A state disk that others had in hand may hold links, second names and
// foreign owners, by which a user of the running node could write to a file after
// it was verified.
//
// It does not know what the files hold: digests and signatures say whether
// that is right. Packages that read from the state directory may import it.
package ownfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/durable"
)

// ErrShared is returned for what others than this program could write to.
var ErrShared = errors.New("not a file or directory of this program's own")

// Folder makes the directory dir where it is missing and closes it to everybody
// else. Anything else in its place, a link above all, is an error.
func Folder(dir string) error {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w", dir, ErrShared)
	}
	if owner(info) != os.Geteuid() {
		if err := os.Lchown(dir, os.Geteuid(), os.Getegid()); err != nil {
			return err
		}
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// Open opens a file for reading: a regular one, of this user, that has no other
// name and that no other user may write to.
func Open(name string) (*os.File, error) { return open(name, os.O_RDONLY) }

// Append opens a file, which must be as for [Open], to write at its end.
func Append(name string) (*os.File, error) { return open(name, os.O_WRONLY|os.O_APPEND) }

// Change opens a file, which must be as for [Open], to read it and to write in it.
func Change(name string) (*os.File, error) { return open(name, os.O_RDWR) }

// Create makes a file that must not be there yet, for its owner only.
func Create(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
}

// ReadFile returns what a file holds, which must be as for [Open]. One of more
// than limit bytes is an error.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// ReadPublic returns what a regular file holds, whichever user owns it and by whatever
// link it is reached: a certificate, for example. It never waits for a pipe.
func ReadPublic(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", name), err, f.Close())
	}
	return readAll(f, limit)
}

// maxAside is how many files are kept of one name.
const maxAside = 9

// SetAside renames what is at name, of which wrong says that it is damaged, so that another
// can be made and nothing is lost. An error of the disk is not one of the file: it is
// returned as it is.
func SetAside(name string, wrong error) (to string, err error) {
	if _, ok := errors.AsType[syscall.Errno](wrong); ok {
		return "", wrong
	}
	for n := 1; ; n++ {
		to = fmt.Sprintf("%s.damaged-%d", name, n)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) || n == maxAside {
			return to, durable.Rename(name, to)
		}
	}
}

func readAll(f *os.File, limit int64) ([]byte, error) {
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than the limit of %d bytes", f.Name(), limit)
	}
	return data, err
}

func open(name string, flag int) (*os.File, error) { return whole.open(name, flag) }

// rules holds the checks of a file.
type rules struct {
	flags check.List[*int]        // of open(2)
	file  check.List[os.FileInfo] // once it is open
}

var whole = rules{
	flags: check.List[*int]{{Name: "no link", OK: followNoLink}},
	file: check.List[os.FileInfo]{
		{Name: "regular file", OK: func(i os.FileInfo) error { return shared(!i.Mode().IsRegular()) }},
		{Name: "closed to others", OK: func(i os.FileInfo) error { return shared(i.Mode().Perm()&0o022 != 0) }},
		{Name: "own", OK: func(i os.FileInfo) error { return shared(owner(i) != os.Geteuid()) }},
		{Name: "one name", OK: func(i os.FileInfo) error {
			return shared(i.Mode().IsRegular() && i.Sys().(*syscall.Stat_t).Nlink != 1)
		}},
	},
}

func followNoLink(flag *int) error {
	*flag |= syscall.O_NOFOLLOW
	return nil
}

func shared(is bool) error {
	if is {
		return ErrShared
	}
	return nil
}

func (r rules) open(name string, flag int) (*os.File, error) {
	if err := r.flags.Run(&flag); err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		f, replaced, err := r.openOnce(name, flag)
		if !replaced || tries == patience {
			return f, err
		}
	}
}

// patience is how often a file is opened that is replaced each time.
const patience = 100

// openOnce reports also whether the name was another file's by the time that this one was
// open: a reader beside a writer then looks again.
func (r rules) openOnce(name string, flag int) (_ *os.File, replaced bool, err error) {
	// Without O_NONBLOCK a pipe in its place would wait for ever.
	f, err := os.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EISDIR) {
		return nil, false, fmt.Errorf("%s: %w", name, ErrShared)
	}
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err == nil {
		replaced = info.Sys().(*syscall.Stat_t).Nlink == 0
		err = errors.Join(shared(replaced), r.file.Run(info))
	}
	if err != nil {
		_ = f.Close() // only read
		return nil, replaced, fmt.Errorf("%s: %w", name, err)
	}
	return f, false, nil
}

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// maxLinks is how many links a path may lead through, as in path_resolution(7).
const maxLinks = 40

// direct returns the path that name leads to, without links. A link on the way must
// belong to this user, root, or who called sudo, and lie where no other user can
// replace it; so must what a link leads to.
func direct(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	at, rest, links := "/", split(abs), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		info, err := os.Lstat(next)
		if err != nil {
			return "", &fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)}
		}
		link := info.Mode()&os.ModeSymlink != 0
		if (link || links > 0) && !held(at, info) {
			return "", &SecretError{name, next + " is a link, or behind one, that others can change", "name the file itself"}
		}
		rest = rest[1:]
		if !link {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &SecretError{name, "it leads through too many links", "name the file itself"}
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(split(to), rest...)
	}
	return at, nil
}

// split returns the names in a path. It keeps "..": what that means is known only
// when the links before it are followed.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// held reports whether only this user and root can put another file in the place of
// one in the directory dir.
func held(dir string, file os.FileInfo) bool {
	d, err := os.Lstat(dir)
	if err != nil || !mine(owner(d)) || !mine(owner(file)) {
		return false
	}
	return d.Mode().Perm()&0o022 == 0 || d.Mode()&os.ModeSticky != 0
}

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
