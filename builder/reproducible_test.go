// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/spec"
)

// TestReproducible builds the same lock twice, the second time on what looks like
// another machine, see [elsewhere]. The first may be what other tests of this run
// have made; the second shares package files with it and nothing else, and builders
// that were killed have begun it. The seconds differ by themselves; another day cannot
// be had without setting the machine's clock, so nothing that a build has written may
// name this one.
func TestReproducible(t *testing.T) {
	o := testOptions(t)
	recipe := testRecipe()
	recipe.Packages.Install = append(recipe.Packages.Install, ask("python3-minimal", "open-iscsi", "nvme-cli", "munge", "ssl-cert")...)
	ledger, err := Settle([]spec.Recipe{recipe}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Ledger = ledger
	o.Debs = t.TempDir()
	build := func(cache string) *Result {
		t.Helper()
		o := o
		o.CacheDir = cache
		r, err := Build(t.Context(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	lock, err := Resolve(t.Context(), recipe, o)
	if err != nil {
		t.Fatal(err)
	}
	backdated(t, &lock, time.Now())
	o.Lock = &lock
	var notes []string
	o.Progress = func(e Event) { notes = append(notes, e.Text) }
	first := build(sharedCache)
	if note := strings.Join(notes, "\n"); !strings.Contains(note, "its own /etc/munge/munge.key;") {
		t.Errorf("the build does not say that a cluster shares the key of MUNGE:\n%s", note)
	}
	for _, row := range perhost.Table {
		for _, pattern := range row.Patterns {
			if found, _ := filepath.Glob(filepath.Join(sharedCache, "steps", "*", "tree", pattern)); len(found) > 0 {
				t.Errorf("in a layer: %q", found)
			}
		}
	}
	elsewhere := elsewhere(t)
	if !t.Run("killed", func(t *testing.T) {
		o := o
		o.CacheDir = elsewhere
		killBuilders(t, order{recipe, o})
	}) {
		return
	}
	second := build(elsewhere)
	if left, _ := filepath.Glob(filepath.Join(elsewhere, "tmp", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// The shared cache has other tests' trees too, some from packages of today.
	if found := today(t, filepath.Join(elsewhere, "steps"), time.Now()); len(found) > 0 {
		t.Errorf("a build a day later, or beside other resolvers, would differ: %q", found)
	}

	want, err := spec.Encode(first.Layer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := spec.Encode(second.Layer)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		for i := range first.Blobs {
			if i < len(second.Blobs) && first.Blobs[i].Digest != second.Blobs[i].Digest {
				t.Errorf("%s differs: %s and %s", first.Blobs[i].Title, first.Blobs[i].Digest, second.Blobs[i].Digest)
			}
		}
		t.Errorf("the second build described another layer:\n%.2000s\n%.2000s", want, got)
	}
}

// backdated gives a lock that has an index of these days the dates of days before: what a
// build has from its lock would look like what it has from the clock.
func backdated(t *testing.T, l *packages.Lock, now time.Time) bool {
	t.Helper()
	parse := func(date string) time.Time {
		at, err := time.Parse(time.RFC3339, date)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	back := func(date string) string { return parse(date).AddDate(0, 0, -3).UTC().Format(time.RFC3339) }
	near := func(r apt.Release) bool { return now.Sub(parse(r.Date)) < 48*time.Hour }
	if !slices.ContainsFunc(append(slices.Clone(l.Releases), apt.Release{Date: l.BaseDate}), near) {
		return false
	}
	l.BaseDate, l.Releases = back(l.BaseDate), slices.Clone(l.Releases)
	for i := range l.Releases {
		l.Releases[i].Date = back(l.Releases[i].Date)
	}
	return true
}

// written is where programs that run in a build write text.
var written = []string{"etc", "root", "var"}

// today lists the lines of text in the trees of steps that name the day of now, as
// text, in seconds, or in days as shadow(5) has it, or a resolver of this machine. A line that
// names another year is of a package: some say when their scripts were written.
func today(t *testing.T, steps string, now time.Time) (found []string) {
	t.Helper()
	now = now.UTC()
	seconds := strconv.FormatInt(now.Unix(), 10)
	forms := []string{now.Format("2006-01-02"), now.Format("20060102"), now.Format("02 Jan 2006"), now.Format("Jan _2"),
		fmt.Sprintf(":%d:", now.Unix()/86400), `\b` + seconds[:len(seconds)-5] + `\d{5}\b`}
	resolvers, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^nameserver\s+(\S+)`).FindAllStringSubmatch(string(resolvers), -1) {
		forms = append(forms, `nameserver\s+`+regexp.QuoteMeta(m[1])+`(\s|$)`)
	}
	names := regexp.MustCompile("(?m)^.*(" + strings.Join(forms, "|") + ").*$")
	year := regexp.MustCompile(`\b(19|20)\d\d\b`)
	for _, dir := range written {
		trees, err := filepath.Glob(filepath.Join(steps, "*", "tree", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, tree := range trees {
			err := filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				data, err := os.ReadFile(name)
				if err == nil && !bytes.ContainsRune(data, 0) {
					for _, line := range names.FindAllString(string(data), -1) {
						if years := year.FindAllString(line, -1); len(years) == 0 || slices.Contains(years, now.Format("2006")) {
							found = append(found, strings.TrimPrefix(name, steps)+": "+line)
						}
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// TestToday: what TestReproducible looks for would be found.
func TestToday(t *testing.T) {
	now := time.Date(2026, 11, 9, 10, 0, 0, 0, time.UTC)
	steps := t.TempDir()
	for name, text := range map[string]string{
		"a/tree/etc/shadow": "root:*:20766:0:99999:7:::\n", "b/tree/var/log": "x\n2026-11-09 10:00 begun\n", "c/tree/var/stamp": "1794218400\n",
		"d/tree/etc/later": "2026-11-10, :20767:, 1794318400\n", "e/tree/usr/doc": "2026-11-09\n", "e/tree/var/script": "# Created On : Sun Nov  9 22:38:40 2003\n", "e/tree/var/syslog": "Nov  9 10:00:00 x begun\n", "f/tree/etc/binary": "\x00 2026-11-09\n",
	} {
		name = filepath.Join(steps, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if found := today(t, steps, now); len(found) != 4 {
		t.Errorf("found %q", found)
	}
}

// TestBackdated: a lock of today is made one of before, an older one is left alone.
func TestBackdated(t *testing.T) {
	l := packages.Lock{BaseDate: "2026-11-01T10:00:00Z", Releases: []apt.Release{{Date: "2026-11-08T23:00:00Z"}, {Date: "2026-11-01T10:00:00Z"}}}
	if backdated(t, &l, time.Date(2026, 11, 10, 23, 30, 0, 0, time.UTC)) || l.Releases[0].Date != "2026-11-08T23:00:00Z" {
		t.Errorf("days later: %+v", l)
	}
	if !backdated(t, &l, time.Date(2026, 11, 9, 10, 0, 0, 0, time.UTC)) || l.Releases[0].Date != "2026-11-05T23:00:00Z" || l.Releases[1].Date != "2026-10-29T10:00:00Z" || l.BaseDate != "2026-10-29T10:00:00Z" {
		t.Errorf("the next day: %+v", l)
	}
	if _, err := l.BaseEpoch(); err != nil {
		t.Error(err)
	}
}

// elsewhere changes all that a build could see of its machine, and returns a cache
// directory there: on another file system, which lists names in another order,
// below directories that only root can enter.
func elsewhere(t *testing.T) (cache string) {
	t.Helper()
	closed := filepath.Join(t.TempDir(), "a much", "longer")
	if err := os.MkdirAll(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("caisson-test", closed, "tmpfs", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(closed, unix.MNT_DETACH) })
	cache = filepath.Join(closed, "path")
	t.Chdir(closed)
	for _, env := range []string{"TZ=Asia/Tokyo", "LANG=tr_TR.UTF-8", "LC_ALL=tr_TR.UTF-8", "LANGUAGE=tr", "USER=somebody", "LOGNAME=somebody", "SHELL=/bin/false",
		"HOME=/nonexistent", "TMPDIR=" + closed, "SOURCE_DATE_EPOCH=1", "DEB_BUILD_OPTIONS=nostrip", "DPKG_ROOT=/x", "APT_CONFIG=/nonexistent", "PERL5OPT=-w"} {
		key, value, _ := strings.Cut(env, "=")
		t.Setenv(key, value)
	}
	umask := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(umask) })
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{4, 24, 12345}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setgroups(groups) })

	runtime.LockOSThread() // the processor mask is the thread's, and its children's
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.SchedSetaffinity(0, &all) // else later tests are slower
		runtime.UnlockOSThread()
	})
	return cache
}
