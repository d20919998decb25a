// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// pinned is the commit of release 0.9.0, which froze the formats: what it writes is read by
// each later release, and it reads what they write. The release's tag replaces it.
const pinned = "a7328fba27c21d4b3d7c1fe00379e6410787aee4"

// pinnedVersion is what programs of that commit call themselves.
const pinnedVersion = "0.9.0"

// pinnedDir returns the directory with the programs of the pinned commit in bin, and its
// quickstart beside that. It is made once a user.
func pinnedDir(t *testing.T) string {
	t.Helper()
	require.Tool(t, "git", "make", "tar")
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", pinned+"^{commit}").CombinedOutput(); err != nil {
		require.Missing(t, "history", fmt.Sprintf("this checkout lacks commit %s, which is release %s (git fetch --unshallow): %s", pinned, pinnedVersion, strings.TrimSpace(string(out))))
	}
	dir, err := madePinned()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var madePinned = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "caisson", "pinned-"+pinned)
	// Where another process makes it at once, that of the two which is done first stays.
	out, err := exec.Command("sh", "-ec", `test ! -e "$1" || exit 0
mkdir -p "${1%/*}"
new=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$new"' EXIT
mkdir "$new/source" "$new/made"
git -C ../.. archive "$2" | tar -x -C "$new/source"
make -s -C "$new/source" build BIN="$new/made/bin" VERSION="$3" BUILT="$(git log -1 --format=%cI "$2")"
cp "$new/source/examples/quickstart/site.yaml" "$new/made"
chmod 755 "$new/made"
mv -T "$new/made" "$1" || test -e "$1"`, "sh", dir, pinned, pinnedVersion).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make the programs of %s: %w\n%s", pinned, err, out)
	}
	return dir, nil
})

// pinnedFleet is a fleet that the release published, its programs still in use; layer is the
// index of its layer.
func pinnedFleet(t *testing.T, edits ...string) (f *Fleet, layer string) {
	t.Helper()
	needs(t)
	dir := pinnedDir(t)
	f = fleetBy(t, filepath.Join(dir, "bin"), filepath.Join(dir, "site.yaml"), edits...)
	return f, f.index(t)
}

// upgrade goes on with the programs of this source: they build a layer, whose index is
// returned, and write the loader again.
func (f *Fleet) upgrade(t *testing.T) (layer string) {
	t.Helper()
	f.Bin = programs(t)
	f.edits(t, noted...)
	f.build(t)
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f.index(t)
}
