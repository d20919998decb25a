// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/test/gittest"
	"github.com/caisson-os/caisson/test/require"
)

// signedDesk is a desk whose service takes what Ann has signed. Its clock goes on by a
// minute a commit.
type signedDesk struct {
	*desk
	ann string
}

func newSignedDesk(t *testing.T) *signedDesk {
	t.Helper()
	d := newDesk(t)
	ann, line := gittest.Key(t, "ann")
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	d.text = strings.Replace(d.text, "branch: main", "branch: main, allowedSigners: "+signers, 1)
	return &signedDesk{d, ann}
}

// sign runs git as Ann, with her key; strangers use d.git.Git.
func (d *signedDesk) sign(args ...string) string {
	d.git.Date = d.git.Date.Add(time.Minute)
	d.git.Signer = d.ann
	defer func() { d.git.Signer = "" }()
	d.git.Git(args...)
	return d.git.Git("rev-parse", "HEAD")
}

func (d *signedDesk) commit(n string) string {
	d.git.Write(conf(n))
	d.git.Git("add", "--all")
	return d.sign("commit", "--quiet", "--allow-empty", "-m", n)
}

// Nobody without a key takes a service back to what somebody signed once.
func TestGoingBackTakesAKey(t *testing.T) {
	require.Slow(t)
	for name, attack := range map[string]func(d *signedDesk, one, two string) (says string){
		"a branch that was reset": func(d *signedDesk, one, _ string) string {
			d.git.Git("reset", "--quiet", "--hard", one)
			return "branch main leads back, to commit " + one[:12]
		},
		"an unsigned merge with the old files": func(d *signedDesk, one, two string) string {
			d.git.Git("reset", "--quiet", "--hard", one)
			d.git.Git("merge", "--quiet", "--no-ff", "-s", "ours", "-m", "merge", two)
			return "is not signed by"
		},
		"an unsigned commit elsewhere on the old files": func(d *signedDesk, one, _ string) string {
			d.git.Git("reset", "--quiet", "--hard", one)
			d.git.Date = d.git.Date.Add(time.Hour)
			d.git.Commit("elsewhere", map[string]string{"other/x": "y"})
			return "is not signed by"
		},
		"a signed branch that was never merged": func(d *signedDesk, one, two string) string {
			d.git.Git("reset", "--quiet", "--hard", "aside")
			return "branch main leads back"
		},
		"another's cache": func(d *signedDesk, one, _ string) string {
			d.Cache = t.TempDir()
			d.git.Git("reset", "--quiet", "--hard", one)
			return "branch main leads back"
		},
		"a server that has forgotten the newer one": func(d *signedDesk, one, _ string) string {
			d.Cache = t.TempDir()
			d.git.Git("reset", "--quiet", "--hard", one)
			d.git.Git("branch", "-D", "aside")
			d.git.Git("reflog", "expire", "--expire=now", "--all")
			d.git.Git("gc", "--quiet", "--prune=now")
			return "branch main leads back"
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newSignedDesk(t)
			one := d.commit("1")
			d.git.Git("checkout", "--quiet", "-b", "aside")
			d.commit("aside")
			d.git.Git("checkout", "--quiet", "main")
			two := d.commit("2")
			d.update(t)
			before := d.locked()
			if before.Commit != two || before.Signed == nil || before.Signed.Commit != two {
				t.Fatalf("%+v", before)
			}
			says := attack(d, one, two)
			if _, err := d.Update(t.Context(), d.lock, d.service(t)); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
			if got := fmt.Sprint(d.locked()); got != fmt.Sprint(before) {
				t.Errorf("the lock has %s", got)
			}
		})
	}
}

// A tag, too, leads on; the site goes where it likes.
func TestTagsLeadOn(t *testing.T) {
	d := newSignedDesk(t)
	d.text = strings.Replace(d.text, "branch: main", "tag: stable", 1)
	one := d.commit("1")
	two := d.commit("2")
	d.git.Git("tag", "stable")
	d.update(t)
	d.git.Git("tag", "--force", "stable", one)
	if _, err := d.Update(t.Context(), d.lock, d.service(t)); err == nil || !strings.Contains(err.Error(), "tag stable leads back") || d.locked().Commit != two {
		t.Errorf("%v; at %s", err, d.locked().Commit)
	}
	d.text = strings.Replace(d.text, "tag: stable", "commit: "+one, 1)
	if d.update(t); d.locked().Commit != one {
		t.Errorf("the site names a commit, and %s is locked", d.locked().Commit)
	}
}

// Who keeps the site goes back with a word; from there it goes on, and not back again.
func TestGoingBackOnPurpose(t *testing.T) {
	d := newSignedDesk(t)
	zero := d.commit("0")
	one := d.commit("1")
	d.commit("2")
	d.update(t)
	d.git.Git("reset", "--quiet", "--hard", one)
	why := service.Frozen{Reason: "2 fails", Since: time.Unix(1, 0).UTC()}
	if c, err := d.Rollback(t.Context(), d.lock, d.service(t), one[:12], why); err != nil || c.To != one {
		t.Fatalf("%+v, %v", c, err)
	}
	Thaw(d.lock, "prometheus")
	if c := d.update(t); c.To != one {
		t.Errorf("%+v", c)
	}
	three := d.commit("3")
	if c := d.update(t); c.To != three {
		t.Errorf("it did not go on: %+v", c)
	}
	d.git.Git("reset", "--quiet", "--hard", zero)
	if _, err := d.Update(t.Context(), d.lock, d.service(t)); err == nil || d.locked().Commit != three {
		t.Errorf("it went back again: %v", err)
	}
	// A history that its signer has rewritten is newer, and is followed.
	if four := d.commit("4"); d.update(t).To != four {
		t.Errorf("%+v", d.locked())
	}
}

// What was locked before the service had signers is not an answer to them, and neither is
// a commit that somebody wrote into the lock.
func TestLockWithoutSignature(t *testing.T) {
	d := newSignedDesk(t)
	unsigned := d.git.Commit("unsigned", conf("0"))
	signed := d.text
	d.text = strings.Replace(authored, "URL", d.git.URL, 1)
	d.update(t)
	row := d.locked()
	d.text = signed
	if stale := row.Stale(d.service(t)); stale == "" {
		t.Error("an unsigned row serves")
	}
	two := d.commit("2")
	d.update(t)
	if d.locked().Commit != two || d.locked().Stale(d.service(t)) != "" {
		t.Errorf("%+v", d.locked())
	}
	written := d.locked()
	written.Commit, written.Image = unsigned, row.Image
	d.Cache = t.TempDir()
	if _, err := d.image(t.Context(), d.service(t), written); err == nil || !strings.Contains(err.Error(), "is not signed by") {
		t.Errorf("an image was made of it: %v", err)
	}
}

// Whatever strangers do to the branch between what Ann does, each commit that the lock
// goes to is one that she signed, and none that an earlier one had left behind.
func TestHistoriesOnlyLeadOn(t *testing.T) {
	require.Slow(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	d := newSignedDesk(t)
	honest := d.commit("0") // where Ann has the branch
	all, bySigner, taken := []string{honest}, map[string]bool{honest: true}, []string{}
	any := func() string { return all[rnd.IntN(len(all))] }
	for step := range 24 {
		what := rnd.IntN(6)
		switch what {
		case 0, 1:
			d.git.Git("reset", "--quiet", "--hard", honest)
			honest = d.commit(fmt.Sprint(step))
			bySigner[honest] = true
		case 2:
			d.git.Git("reset", "--quiet", "--hard", honest)
			honest = d.sign("merge", "--quiet", "--no-ff", "-s", "ours", "-m", fmt.Sprint(step), any())
			bySigner[honest] = true
		case 3:
			d.git.Git("reset", "--quiet", "--hard", any())
		case 4:
			d.git.Git("reset", "--quiet", "--hard", any())
			d.git.Date = d.git.Date.Add(time.Second)
			d.git.Commit(fmt.Sprint(step), map[string]string{"other/x": fmt.Sprint(step)})
		case 5:
			d.git.Git("reset", "--quiet", "--hard", any())
			d.git.Git("merge", "--quiet", "--no-ff", "-s", "ours", "-m", fmt.Sprint(step), any())
		}
		tip := d.git.Git("rev-parse", "HEAD")
		if !slices.Contains(all, tip) {
			all = append(all, tip)
		}
		before := d.locked()
		_, err := d.Update(t.Context(), d.lock, d.service(t))
		if err != nil {
			if fmt.Sprint(d.locked()) != fmt.Sprint(before) {
				t.Fatalf("step %d: refused, and the lock has %+v", step, d.locked())
			}
			if what < 3 {
				t.Fatalf("step %d: Ann's own is refused: %v", step, err)
			}
			continue
		}
		if !bySigner[tip] || d.locked().Signed.Commit != tip {
			t.Fatalf("step %d (%d): the lock went to %s: %+v", step, what, tip, d.locked())
		}
		for _, earlier := range taken {
			if earlier != tip && d.git.Git("merge-base", earlier, tip) == tip {
				t.Fatalf("step %d (%d): went back from %s to %s", step, what, earlier, tip)
			}
		}
		taken = append(taken, tip)
	}
}

// TestForgedImage: who writes the lock and pushes to the registry, and has no key of a signer, has
// an image of his own neither built, nor taken from a cache or the registry. What was published is
// taken as it is, and git is not asked.
func TestForgedImage(t *testing.T) {
	d := newSignedDesk(t)
	d.commit("0")
	d.git.Git("checkout", "--quiet", "-b", "his")
	d.git.Commit("his own", conf("his"))
	text := d.text
	d.text = regexp.MustCompile(`branch: main, allowedSigners: [^},]*`).ReplaceAllString(text, "branch: his")
	d.update(t)
	his := d.locked().Image // it is in the cache: it was a service's without signers
	d.git.Git("checkout", "--quiet", "main")
	d.text = text
	d.commit("1")
	d.lock = service.NewLock()
	d.update(t)
	good := d.locked()
	if good.Image == his {
		t.Fatal("his image is the good one")
	}
	none := func(context.Context, string) (*spec.Overlay, error) { return nil, nil }
	if err := d.Verify(t.Context(), d.site(t), none); err != nil {
		t.Fatal(err)
	}
	forged := good
	forged.Image = his
	d.lock.Services["prometheus"] = forged
	var mend interface{ Hint() string }
	if err := d.Verify(t.Context(), d.site(t), none); !errors.As(err, &mend) || !strings.Contains(err.Error(), "service prometheus: the image of commit "+good.Commit) {
		t.Errorf("%v", err)
	}
	// His image was published, under a commit that nobody had to sign, or other files of the commit.
	was := func(commit string, image spec.Blob, dirs []spec.ServiceDirectory) func(context.Context, string) (*spec.Overlay, error) {
		return func(context.Context, string) (*spec.Overlay, error) {
			return &spec.Overlay{Services: []spec.Service{{Name: "prometheus", Commit: commit, Image: image, Directories: dirs}}}, nil
		}
	}
	dirs := d.service(t).Directories
	for name, published := range map[string]func(context.Context, string) (*spec.Overlay, error){
		"another commit":      was(strings.Repeat("0", 40), his, dirs),
		"another image":       was(good.Commit, good.Image, dirs),
		"other files of both": was(good.Commit, his, []spec.ServiceDirectory{{From: "other", To: "/x"}}),
	} {
		if err := d.Verify(t.Context(), d.site(t), published); err == nil {
			t.Errorf("%s was published, and his image is taken", name)
		}
	}
	if err := os.RemoveAll(d.git.Dir); err != nil {
		t.Fatal(err)
	}
	d.Cache = t.TempDir()
	d.lock.Services["prometheus"] = good
	if err := d.Verify(t.Context(), d.site(t), was(good.Commit, good.Image, dirs)); err != nil {
		t.Errorf("a repository that is gone stops what was published: %v", err)
	}
	if err := d.Verify(t.Context(), d.site(t), none); err == nil {
		t.Error("what nobody can build is taken")
	}
}
