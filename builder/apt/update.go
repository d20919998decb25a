// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/root"
)

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
apt-get -qq -o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=/tmp/lists -o Dir::Cache=/tmp/cache -o APT::Sandbox::User=root -o Acquire::Languages=none update
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
