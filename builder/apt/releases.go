// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/plain"
)

// Release is one index that packages were resolved against.
type Release struct {
	Suite  string `json:"suite"`
	Origin string `json:"origin,omitempty"`
	Date   string `json:"date"` // RFC 3339
	SHA256 string `json:"sha256"`

	Archive string `json:"archive,omitempty"` // ID of the archive that signed it; locks of 0.9.0 lack it
}

// Releases describes the indexes of the last Update, sorted.
func (s *State) Releases() ([]Release, error) {
	files, err := filepath.Glob(s.path("lists/*Release"))
	if err != nil {
		return nil, err
	}
	var all []Release
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r, err := parseRelease(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		r.Archive = s.archiveOf(filepath.Base(file)).ID
		all = append(all, r)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Suite+all[i].SHA256 < all[j].Suite+all[j].SHA256 })
	return all, nil
}

// archiveOf returns the archive whose index a file of apt's lists is, an empty one where its name does not say.
func (s *State) archiveOf(list string) Archive {
	for _, a := range s.archives {
		for _, suite := range a.Suites {
			at := "dists/" + suite + "/"
			if strings.HasSuffix(suite, "/") {
				at = strings.TrimPrefix(suite, "/") // flat
			}
			if strings.HasPrefix(list, listName(strings.TrimRight(a.URI, "/")+"/"+at)) {
				return a
			}
		}
	}
	return Archive{}
}

func parseRelease(data []byte) (Release, error) {
	text := string(data)
	if rest, ok := strings.CutPrefix(text, "-----BEGIN PGP SIGNED MESSAGE-----"); ok {
		if _, body, ok := strings.Cut(rest, "\n\n"); ok {
			text, _, _ = strings.Cut(body, "-----BEGIN PGP SIGNATURE-----")
		}
	}
	stanzas := Stanzas(text)
	if len(stanzas) == 0 {
		return Release{}, fmt.Errorf("no fields")
	}
	st := stanzas[0]
	suite := cmp.Or(st.Get("Codename"), st.Get("Suite"))
	date, err := parseDate(st.Get("Date"))
	if err != nil {
		return Release{}, err
	}
	sum := sha256.Sum256(data)
	return Release{Suite: suite, Origin: st.Get("Origin"), Date: date.UTC().Format(time.RFC3339), SHA256: hex.EncodeToString(sum[:])}, nil
}

func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC1123, time.RFC1123Z, "Mon, _2 Jan 2006 15:04:05 MST"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("date %q is not that of a Release file", text)
}

// Stanza is one paragraph of a control file, see deb822(5).
type Stanza struct {
	Text   string
	fields map[string]string
}

// Get returns a field, folded lines joined by blanks, or "".
func (s Stanza) Get(field string) string { return s.fields[strings.ToLower(field)] }

// Stanzas splits control-file text. Comments are skipped.
func Stanzas(text string) []Stanza {
	var all []Stanza
	var b strings.Builder
	fields := map[string]string{}
	last := ""
	flush := func() {
		if len(fields) > 0 {
			all = append(all, Stanza{Text: b.String(), fields: fields})
		}
		b.Reset()
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.TrimSpace(line) == "":
			flush()
			continue
		case line[0] == '#':
			continue
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += " " + strings.TrimSpace(line)
			}
		default:
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(key)
			fields[last] = strings.TrimSpace(value)
		}
		b.WriteString(line + "\n")
	}
	flush()
	return all
}

// methods is where apt's own programs are that fetch and verify.
const methods = "/usr/lib/apt/methods/"

// Signer names the keys that sign an archive of a site.
type Signer struct {
	Archive string   `json:"archive"` // ID
	Keys    []string `json:"keys"`    // fingerprints, sorted
}

// Signers are those of several archives.
type Signers []Signer

// Of returns the fingerprints of an archive's keys, none where nothing is known of it.
func (s Signers) Of(archive string) []string {
	return plain.First(s, func(one Signer) bool { return one.Archive == archive }).Keys
}

// Signers returns by which keys the archives' indexes are signed, as apt's own program verifies
// them with their keyrings now, sorted by archive. One without a keyring has none.
func (s *State) Signers(ctx context.Context) (all Signers, err error) {
	files, err := filepath.Glob(s.path("lists/*Release"))
	if err != nil {
		return nil, err
	}
	keys := map[string][]string{}
	for _, file := range files {
		list := filepath.Base(file)
		a := s.archiveOf(list)
		if a.Keyring == "" {
			continue
		}
		by, err := s.verify(ctx, file, a.Keyring)
		if err != nil {
			return nil, fmt.Errorf("verify the index %s of archive %s: %w", list, a.ID, err)
		}
		keys[s.owner(list)] = append(keys[s.owner(list)], by...)
	}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		slices.Sort(keys[id])
		all = append(all, Signer{id, slices.Compact(keys[id])})
	}
	return all, nil
}

// owner is the archive that a package of a file of apt's lists is said to be from, see parseURI.
func (s *State) owner(list string) string {
	return plain.First(s.archives, func(a Archive) bool {
		return strings.HasPrefix(list, listName(strings.TrimRight(a.URI, "/")+"/"))
	}).ID
}

// verify returns the fingerprints of the keys by which an index is signed, also of their
// primaries. It speaks as apt does with its methods; apt prefers sqv where there is one.
func (s *State) verify(ctx context.Context, file, keyring string) ([]string, error) {
	method := "sqv"
	if _, err := os.Stat(methods + method); err != nil {
		method = "gpgv"
	}
	signature := file
	if !strings.HasSuffix(file, "InRelease") {
		signature += ".gpg"
	}
	said, err := s.feed(ctx, fmt.Sprintf("600 URI Acquire\nURI: %s:%s\nFilename: %s\nSigned-By: %s\n\n",
		method, signature, file, keyring), methods+method)
	if err != nil {
		return nil, err
	}
	why := "it says nothing"
	for _, answer := range Stanzas(said) {
		if keys := strings.Fields(strings.ReplaceAll(answer.Get("Signed-By"), "!", "")); len(keys) > 0 {
			return keys, nil
		}
		if text := answer.Get("Message"); text != "" {
			why = text
		}
	}
	return nil, errors.New(method + ": " + why)
}

// vouched holds the sums that archives sign now, and their keys.
type vouched struct {
	keys Signers
	sums map[string]map[string]bool // SHA-256 of package files
}

// signed asks the archives, and returns what the indexes have that apt verifies now.
func (s *State) signed(ctx context.Context) (vouched, error) {
	v := vouched{sums: map[string]map[string]bool{}}
	if err := s.Update(ctx); err != nil {
		return v, err
	}
	files, err := filepath.Glob(s.path("lists/*Packages"))
	if err != nil {
		return v, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return v, err
		}
		from := s.owner(filepath.Base(file))
		if v.sums[from] == nil {
			v.sums[from] = map[string]bool{}
		}
		for line := range bytes.Lines(data) {
			if sum, is := bytes.CutPrefix(line, []byte("SHA256: ")); is {
				v.sums[from][string(bytes.TrimSpace(sum))] = true
			}
		}
	}
	v.keys, err = s.Signers(ctx)
	return v, err
}

// Agree reports whether two lists of keys have one in common.
func Agree(some, others []string) bool {
	return slices.ContainsFunc(some, func(key string) bool { return slices.Contains(others, key) })
}

// Update fetches the archives' indexes, verified by apt with their keyrings, unless
// they are [State.Current].
func (s *State) Update(ctx context.Context) error {
	if len(s.archives) == 0 {
		return nil
	}
	current, err := s.Current(ctx)
	if err != nil || current {
		return err
	}
	if _, err := s.run(ctx, "apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any"); err != nil {
		return s.noSuite(fmt.Errorf("fetch the package indexes: %w", err))
	}
	if err := os.WriteFile(s.updated(), nil, 0o644); err != nil {
		return err
	}
	return s.checkComponents()
}

// updated is there as long as the indexes are those that apt verified last.
func (s *State) updated() string { return s.path("updated") }

// Verified reports whether there are indexes that apt verified, of whatever age.
func (s *State) Verified() bool {
	_, err := os.Stat(s.updated())
	return err == nil || len(s.archives) == 0
}

// Current reports whether every archive still has the InRelease that apt verified
// before. Then there is nothing to fetch: apt would read a hundred megabytes to find
// that out. It changes no index, so that apt may resolve with them meanwhile.
func (s *State) Current(ctx context.Context) (bool, error) {
	switch {
	case len(s.archives) == 0:
		return true, nil
	case !s.Verified():
		return false, nil
	case !s.unchanged(ctx):
		return false, os.Remove(s.updated())
	}
	now := time.Now()
	if err := os.Chtimes(s.updated(), now, now); err != nil {
		return false, err
	}
	return true, s.checkComponents()
}

// unchanged compares what the archives have with what apt verified. Any doubt,
// also an index that has expired, leaves the verdict to apt.
func (s *State) unchanged(ctx context.Context) bool {
	dir, err := os.MkdirTemp(s.dir, "inrelease-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir) // the next build clears what is left
	most, files := 0, []string(nil)
	for _, a := range s.archives {
		for _, suite := range a.Suites {
			if strings.HasSuffix(suite, "/") {
				return false // a flat archive: rare, and small
			}
			uri := strings.TrimRight(a.URI, "/") + "/dists/" + suite + "/InRelease"
			_, name, ok := strings.Cut(uri, "://")
			if !ok || strings.ContainsAny(name, "_%@~") { // apt writes these in ways of its own
				return false
			}
			was, err := os.ReadFile(s.path("lists/" + strings.ReplaceAll(name, "/", "_")))
			if err != nil || expired(was) {
				return false
			}
			most = max(most, len(was))
			files = append(files, uri, filepath.Join(dir, fmt.Sprint(len(files))), fmt.Sprintf("SHA256:%x", sha256.Sum256(was)))
		}
	}
	return s.download(ctx, int64(most), files) == nil
}

// download has apt's helper download files, each a URI, a path and a hash. None becomes longer than most:
// a mirror may send without end.
func (s *State) download(ctx context.Context, most int64, files []string) error {
	args := []string{"/bin/sh", "-c", `ulimit -f "$1"; shift; exec "$0" download-file "$@"`, helper, fmt.Sprint(most/512 + 1)}
	_, err := s.run(ctx, append(args, files...)...)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Args = append([]string{helper}, files...)
	}
	return err
}

// expired says whether an index must not be used any more.
func expired(release []byte) bool {
	for line := range strings.Lines(string(release)) {
		if until, ok := strings.CutPrefix(line, "Valid-Until:"); ok {
			t, err := parseDate(strings.TrimSpace(until))
			return err != nil || time.Now().After(t)
		}
	}
	return false
}

// ForbidServices keeps services of r from starting, see invoke-rc.d(8). The file
// must not stay in a layer.
func ForbidServices(r *root.Root) error {
	return r.WriteFile("/usr/sbin/policy-rc.d", []byte("#!/bin/sh\nexit 101\n"), 0o755)
}

// offer makes the repository at [root.Bind] all that the apt of a root knows. Each
// run has its own /tmp, so the lists are read again, from a local file. debconf is
// not run before the packages are unpacked: that is for people who answer its
// questions, and here each package's own script finds the answers, see
// dpkg-preconfigure(8).
const offer = `set -e
mkdir -p /tmp/lists/partial /tmp/cache/archives/partial
cp -r /etc/apt/apt.conf.d /tmp/parts
rm -f /tmp/parts/70debconf
echo 'Dir::Etc::parts "/tmp/parts";' >/tmp/apt.conf
export APT_CONFIG=/tmp/apt.conf
echo "deb [trusted=yes] file:` + root.Bind + ` ./" >/tmp/sources.list
apt-get -qq -o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=- \
	-o Dir::State::lists=/tmp/lists -o Dir::Cache=/tmp/cache -o APT::Sandbox::User=root -o Acquire::Languages=none update
exec "$@"`

// Get runs the apt-get(8) of r, without questions, on the flat repository repo.
// What it refuses is an [Error].
func Get(ctx context.Context, r *root.Root, repo string, line func(string), args ...string) error {
	all := append([]string{"/bin/sh", "-c", offer, "apt",
		"apt-get", "-y", "-o", "Dir::Etc::sourcelist=/tmp/sources.list", "-o", "Dir::Etc::sourceparts=-",
		"-o", "Dir::State::lists=/tmp/lists", "-o", "Dir::Cache=/tmp/cache", "-o", "APT::Install-Recommends=false", "-o",
		"APT::Sandbox::User=root",
		"-o", "Acquire::Languages=none", "-o", "Dpkg::Use-Pty=0",
		"-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "-o", "DPkg::Options::=--force-unsafe-io"}, args...)
	return ReasonsOf(r.RunWith(ctx, repo, root.Command{Args: all, Line: line}))
}
