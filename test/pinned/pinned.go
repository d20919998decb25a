// SPDX-License-Identifier: Apache-2.0

// Package pinned makes the programs of the release that froze the formats, for tests in which
// releases meet. Only tests import it.
package pinned

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// Commit is that of release 0.9.0, which froze the formats: what it writes is read by
// each later release, and it reads what they write. The release's tag replaces it.
const Commit = "a7328fba27c21d4b3d7c1fe00379e6410787aee4"

// Version is what programs of that commit call themselves.
const Version = "0.9.0"

// Programs returns a directory with the programs of the commit in bin, and its quickstart
// beside that. It is made once a user.
func Programs(t testing.TB) (dir string) {
	t.Helper()
	require.Tool(t, "git", "make", "tar")
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", Commit+"^{commit}").CombinedOutput(); err != nil {
		require.Missing(t, "history", fmt.Sprintf("this checkout lacks commit %s, which is release %s (git fetch --unshallow): %s", Commit, Version, strings.TrimSpace(string(out))))
	}
	dir, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var made = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "caisson", "pinned-"+Commit)
	// Where another process makes it at once, that of the two which is done first stays.
	out, err := exec.Command("sh", "-ec", `test ! -e "$1" || exit 0
mkdir -p "${1%/*}"
new=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$new"' EXIT
mkdir "$new/source" "$new/made"
git -C "$(git rev-parse --show-toplevel)" archive "$2" | tar -x -C "$new/source"
make -s -C "$new/source" build BIN="$new/made/bin" VERSION="$3" BUILT="$(git log -1 --format=%cI "$2")"
cp "$new/source/examples/quickstart/site.yaml" "$new/made"
chmod 755 "$new/made"
mv -T "$new/made" "$1" || test -e "$1"`, "sh", dir, Commit, Version).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make the programs of %s: %w\n%s", Commit, err, out)
	}
	return dir, nil
})
