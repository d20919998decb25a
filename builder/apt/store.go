// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
)

// notThere is how apt's transports say that an archive lacks a file.
var notThere = regexp.MustCompile(`\b404\b|No such file|File not found`)

// helper is apt's own downloader: it speaks every transport that apt speaks.
const helper = "/usr/lib/apt/apt-helper"

// Store keeps package files by their sha256.
type Store struct {
	Dir  string   // <sha256>.deb and <sha256>.control
	Kept []string // further directories of .deb files, asked before any archive

	// Signed takes nothing that the archive which the lock names has not signed, by a key of Keys
	// where there are any, but for the packages Unsigned: a lock is itself signed by nobody.
	Signed   bool
	Unsigned []string // names, or [AnyPackage]
	Keys     Signers
}

// AnyPackage in the place of a name stands for every package.
const AnyPackage = "all"

// NotSigned is returned for a package of a lock that the archive's signed index does not have.
type NotSigned struct{ Deb Deb }

func (n *NotSigned) Error() string {
	return fmt.Sprintf("package %s %s is in no index that archive %q signed: the file with the sha256 that the lock names may be anybody's",
		n.Deb.Name, n.Deb.Version, n.Deb.Archive)
}

// Hint says how to go on.
func (n *NotSigned) Hint() string {
	return "'caisson lock --update' takes what the archives have; where you know the file, as one that an archive has " +
		"replaced, --unsigned " + n.Deb.Name + " takes it"
}

// OtherKey is returned for an archive whose index none of the lock's keys has signed.
type OtherKey struct {
	Archive   string
	Was, Keys []string // fingerprints: the lock's, and those that signed the index
}

func (o *OtherKey) Error() string {
	return fmt.Sprintf("archive %q is signed by %s, and the lock names %s", o.Archive, strings.Join(o.Keys, ", "), strings.Join(o.Was, ", "))
}

// Hint says how to go on.
func (o *OtherKey) Hint() string {
	return "ask whose keys they are; 'caisson lock --update' takes the archive with them"
}

// Waived reports whether a package is among those that are taken though no archive signed them.
func Waived(d Deb, unsigned []string) bool {
	return slices.Contains(unsigned, d.Name) || slices.Contains(unsigned, AnyPackage)
}

// mayTake refuses a package that its archive did not sign, and returns the keys that signed it.
func (s *Store) mayTake(d Deb, signed func() (vouched, error)) (keys []string, err error) {
	switch {
	case !s.Signed:
		return s.Keys.Of(d.Archive), nil // apt has just read the index
	case Waived(d, s.Unsigned):
		return nil, nil
	}
	now, err := signed()
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("see whether an archive signed what the lock names: %w", err), "--unsigned "+
			AnyPackage+" takes what the lock names without asking the archives")
	}
	keys = now.keys.Of(d.Archive)
	if was := s.Keys.Of(d.Archive); len(was) > 0 && !Agree(was, keys) {
		return nil, &OtherKey{d.Archive, was, keys}
	}
	if !now.sums[d.Archive][d.SHA256] {
		return nil, &NotSigned{d}
	}
	return keys, nil
}

// mayKeep refuses a package that the store has, as mayTake does, unless a key of the lock is known
// to have signed it: others, or another lock, may have put it there.
func (s *Store) mayKeep(d Deb, signed func() (vouched, error)) error {
	data, err := os.ReadFile(s.keys(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known, was := strings.Fields(string(data)), s.Keys.Of(d.Archive)
	if !s.Signed || Agree(known, was) || len(was) == 0 && len(known) > 0 {
		return nil
	}
	keys, err := s.mayTake(d, signed)
	if err != nil {
		return err
	}
	return s.note(d, keys)
}

// note says which keys signed a package of the store, where any did.
func (s *Store) note(d Deb, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	return durable.WriteFile(s.keys(d), []byte(strings.Join(keys, "\n")), 0o600)
}

// Gone is returned for a package that no archive has any more.
type Gone struct {
	Deb Deb
	Now string // version that the archives have instead, if any
	Err error
}

func (g *Gone) Error() string {
	now := "and nothing has replaced it"
	if g.Now != "" {
		now = "the archive has " + g.Now + " now"
	}
	return fmt.Sprintf("package %s %s is gone from archive %q, %s", g.Deb.Name, g.Deb.Version, g.Deb.Archive, now)
}
func (g *Gone) Unwrap() error { return g.Err }

// Hint says how to go on.
func (g *Gone) Hint() string {
	return "run 'caisson lock --update' to take what the archive has, or build with --debs and a directory that has " +
		"the file, and --unsigned " + g.Deb.Name
}

// Fetched says how far [Store.Fetch] has come: with which file, the how manieth of
// how many, and bytes of how many.
type Fetched struct {
	Deb            Deb
	N, Of          int
	Bytes, OfBytes int64
}

// row is what a lock may say of a package: all of it becomes a file's name, and a line of an index that
// apt trusts.
var row = regexp.MustCompile(`^[!-.0-~]+ [!-.0-~]+ [!-.0-~]+ [0-9a-f]{64}$`)

func (d Deb) check() error {
	if d.Size < 1 || !row.MatchString(strings.Join([]string{d.Name, d.Version, d.Arch, d.SHA256}, " ")) {
		return fmt.Errorf("package %.80q %.80q: its name, version, architecture, size or sha256 is none", d.Name, d.Version)
	}
	return nil
}

// Fetch gets what is missing. got is called with each file that had to be
// fetched, how many there are and their bytes so far.
func (s *Store) Fetch(ctx context.Context, st *State, debs []Deb, got func(Fetched)) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	signed := sync.OnceValues(func() (vouched, error) { return st.signed(ctx) })
	var missing []Deb
	for _, d := range debs {
		if err := d.check(); err != nil {
			return err
		}
		if s.holds(d) {
			if err := s.mayKeep(d, signed); err != nil {
				return err
			}
			now := time.Now() // the cache forgets what nobody uses
			for _, name := range []string{s.control(d), s.Path(d), s.keys(d)} {
				_ = os.Chtimes(name, now, now) // a cache that forgets too early is only slow
			}
			continue
		}
		found, err := s.take(ctx, d, signed)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		missing = append(missing, d)
	}
	partial, err := os.MkdirTemp(s.Dir, "partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial) // the next build clears what is left
	of, done, bytes, ofBytes := len(missing), 0, int64(0), int64(0)
	for _, d := range missing {
		ofBytes += d.Size
	}
	for len(missing) > 0 {
		n := min(len(missing), 16)
		if err := s.download(ctx, st, partial, missing[:n], signed); err != nil {
			return err
		}
		for _, d := range missing[:n] {
			done++
			bytes += d.Size
			got(Fetched{d, done, of, bytes, ofBytes})
		}
		missing = missing[n:]
	}
	return nil
}

// holds reports whether a package is there, and unharmed.
func (s *Store) holds(d Deb) bool {
	if _, err := s.readControl(d); err != nil {
		return false
	}
	f, err := os.Open(s.Path(d))
	if err != nil {
		return false
	}
	defer f.Close() // only read
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return err == nil && hex.EncodeToString(sum.Sum(nil)) == d.SHA256
}

// A .control file ends with a line that holds the hash of what stands before.
const controlSum = "Caisson-SHA256: "

func (s *Store) readControl(d Deb) (string, error) {
	data, err := os.ReadFile(s.control(d))
	if err != nil {
		return "", err
	}
	text, sum, ok := strings.Cut(string(data), controlSum)
	if !ok || sum != fmt.Sprintf("%x\n", sha256.Sum256([]byte(text))) {
		return "", fmt.Errorf("%s is damaged", s.control(d))
	}
	return text, nil
}

// Path is the file of a package that Fetch has got.
func (s *Store) Path(d Deb) string    { return filepath.Join(s.Dir, d.SHA256+".deb") }
func (s *Store) control(d Deb) string { return filepath.Join(s.Dir, d.SHA256+".control") }
func (s *Store) keys(d Deb) string    { return filepath.Join(s.Dir, d.SHA256+".keys") }

// take looks into the kept directories.
func (s *Store) take(ctx context.Context, d Deb, signed func() (vouched, error)) (bool, error) {
	for _, dir := range s.Kept {
		from := filepath.Join(dir, d.FileName())
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		keys, err := s.mayTake(d, signed)
		if err != nil {
			return false, err
		}
		if err := s.accept(ctx, d, from, keys); err != nil {
			return false, fmt.Errorf("kept package %s: %w", from, err)
		}
		return true, nil
	}
	return false, nil
}

// FileName is the usual name of a package file; a colon is written %3a.
func (d Deb) FileName() string {
	return d.Name + "_" + strings.ReplaceAll(d.Version, ":", "%3a") + "_" + d.Arch + ".deb"
}

func (s *Store) download(ctx context.Context, st *State, partial string, debs []Deb, signed func() (vouched, error)) error {
	most, files := int64(0), []string(nil)
	for _, d := range debs {
		uri := ""
		for _, a := range st.archives {
			if a.ID == d.Archive {
				// as apt writes a path in a URI
				uri = strings.TrimRight(a.URI, "/") + "/" + strings.Join(plain.Each(strings.Split(d.Path, "/"), url.PathEscape), "/")
			}
		}
		if uri == "" {
			return fmt.Errorf("package %s %s: the lock names archive %q, which is not in this site", d.Name, d.Version, d.Archive)
		}
		most = max(most, d.Size)
		files = append(files, uri, filepath.Join(partial, d.SHA256), "SHA256:"+d.SHA256)
	}
	err := st.download(ctx, most, files)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, d := range debs {
		got := filepath.Join(partial, d.SHA256)
		if _, statErr := os.Stat(got); statErr != nil {
			if err == nil {
				err = statErr
			}
			if notThere.MatchString(err.Error()) {
				return &Gone{Deb: d, Now: st.candidate(ctx, d.Name), Err: err}
			}
			return fmt.Errorf("fetch package %s %s: %w", d.Name, d.Version, err)
		}
		keys, err := s.mayTake(d, signed)
		if err != nil {
			return err
		}
		if err := s.accept(ctx, d, got, keys); err != nil {
			return fmt.Errorf("fetch package %s %s: %w", d.Name, d.Version, err)
		}
	}
	return nil
}

// candidate is the version an archive offers now, for an error's sake.
func (s *State) candidate(ctx context.Context, name string) string {
	if s.Update(ctx) != nil {
		return ""
	}
	out, err := s.run(ctx, "apt-cache", "policy", "--", name)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate: "); ok && v != "(none)" {
			return v
		}
	}
	return ""
}

// accept takes the file from, which keys signed, into the store if it is the one that d names.
func (s *Store) accept(ctx context.Context, d Deb, from string, keys []string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	sum := sha256.New()
	err = durable.Write(s.Path(d), 0o600, func(w io.Writer) error {
		if _, err := io.Copy(io.MultiWriter(w, sum), f); err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != d.SHA256 {
			return fmt.Errorf("sha256 is %s, want %s", got, d.SHA256)
		}
		return nil
	})
	if err != nil {
		return err
	}
	control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", s.Path(d)).Output()
	if err != nil {
		return fmt.Errorf("read its control file: %w", err)
	}
	if err := s.note(d, keys); err != nil {
		return err
	}
	control = fmt.Appendf(control, "%s%x\n", controlSum, sha256.Sum256(control))
	return durable.WriteFile(s.control(d), control, 0o600)
}

// Repo makes dir a flat repository of exactly these packages, unsigned: it
// never leaves the machine, and each file was checked against its sha256.
func (s *Store) Repo(dir, suite string, debs []Deb) error {
	if err := os.MkdirAll(filepath.Join(dir, "pool"), 0o755); err != nil {
		return err
	}
	var index strings.Builder
	for _, d := range debs {
		control, err := s.readControl(d)
		if err != nil {
			return err
		}
		name := filepath.Join("pool", d.FileName())
		if err := os.Link(s.Path(d), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		fmt.Fprintf(&index, "%s\nFilename: %s\nSize: %d\nSHA256: %s\n\n", strings.TrimSpace(control), name, d.Size, d.SHA256)
	}
	sum := sha256.Sum256([]byte(index.String()))
	release := fmt.Sprintf("Suite: %[1]s\nCodename: %[1]s\nArchitectures: all amd64 arm64\n"+
		"Date: Thu, 01 Jan 1970 00:00:00 UTC\nSHA256:\n %x %d Packages\n",
		suite, sum, index.Len())
	if err := os.WriteFile(filepath.Join(dir, "Packages"), []byte(index.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "Release"), []byte(release), 0o644)
}
