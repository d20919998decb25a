// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

const helloDigest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

func open(t *testing.T) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoreKeepsOnlyWhatItsNameSays(t *testing.T) {
	s := open(t)
	if err := s.Put(helloDigest, []byte("hullo")); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Put of other bytes: %v, want ErrCorrupt", err)
	}
	if s.Has(helloDigest, 5) {
		t.Fatal("a refused blob is there")
	}
	if err := s.Put(helloDigest, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(helloDigest, 5); err != nil || string(got) != "hello" {
		t.Fatalf("Get: %q, %v", got, err)
	}
	if _, err := s.Get(helloDigest, 4); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Get over the limit: %v, want ErrCorrupt", err)
	}
}

func TestVerifyDeletesWhatRotted(t *testing.T) {
	s := open(t)
	if err := s.Put(helloDigest, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(helloDigest); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(helloDigest), []byte("hellO"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(helloDigest); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Verify of rotted bytes: %v, want ErrCorrupt", err)
	}
	if s.Has(helloDigest, 5) {
		t.Fatal("the rotted blob is still there")
	}
}

// An attacker who had the disk could leave a way to change a blob after it was verified.
func TestABlobWithASecondNameIsNotOurs(t *testing.T) {
	for name, leave := range map[string]func(from, to string) error{"link": os.Symlink, "second name": os.Link} {
		s := open(t)
		theirs := filepath.Join(t.TempDir(), "theirs")
		if err := os.WriteFile(theirs, []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := leave(theirs, s.Path(helloDigest)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(helloDigest, 5); err == nil {
			t.Errorf("%s: Get gave %q", name, got)
		}
		if err := s.Verify(helloDigest); !errors.Is(err, ownfiles.ErrShared) {
			t.Errorf("%s: Verify: %v, want ErrShared", name, err)
		}
		if err := leave(theirs, s.Path(helloDigest)+".partial"); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(helloDigest); !errors.Is(err, ownfiles.ErrShared) {
			t.Errorf("%s: Commit: %v, want ErrShared", name, err)
		}
		if _, err := os.Lstat(s.Partial(helloDigest)); err == nil {
			t.Errorf("%s: a fetch would write through it", name)
		}
	}
}

func TestPathConfinesDigests(t *testing.T) {
	s := open(t)
	for _, bad := range []string{"", "sha256:", "sha256:../../etc/passwd", "sha512:" + helloDigest[7:], "sha256:" + "A" + helloDigest[8:]} {
		if got, want := s.Path(bad), s.dir+"/sha256/invalid"; got != want {
			t.Errorf("Path(%q) = %s, want %s", bad, got, want)
		}
	}
}

// What goes while it is collected, as when a fetch that has come to its end gives it another name, keeps nothing else.
func TestCollectBesideAnother(t *testing.T) {
	s := open(t)
	for i := range 500 {
		if err := os.WriteFile(s.Path(digests.Of([]byte(fmt.Sprint(i)))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := s.Collect(nil); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if left := files(t, s); len(left) != 0 {
		t.Errorf("%d are left", len(left))
	}
}

func TestCollect(t *testing.T) {
	s := open(t)
	if err := s.Put(helloDigest, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	other := "sha256:" + "00" + helloDigest[9:]
	if err := os.WriteFile(s.Partial(other), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(filepath.Dir(s.Path(other)), ".00.123") // by who stages a layer meanwhile, without a lock
	if err := os.WriteFile(written, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	freed, err := s.Collect(map[string]bool{helloDigest: true})
	if err != nil || freed != 4 || !s.Has(helloDigest, 5) {
		t.Fatalf("Collect freed %d, %v; kept: %v", freed, err, s.Has(helloDigest, 5))
	}
	if _, err := os.Lstat(written); err != nil {
		t.Errorf("what is being written: %v", err)
	}
}

// What was left of a write that was cut goes; what a fetch resumes stays.
func TestSweep(t *testing.T) {
	s := open(t)
	digest := digests.Of([]byte("x"))
	if err := s.Put(digest, []byte("x")); err != nil {
		t.Fatal(err)
	}
	left, partial := filepath.Join(filepath.Dir(s.Path(digest)), ".00.123"), s.Partial(digests.Of([]byte("y")))
	for _, name := range []string{left, partial} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{left: false, partial: true, s.Path(digest): true} {
		if _, err := os.Stat(name); (err == nil) != stays {
			t.Errorf("%s: %v, want it there: %v", name, err, stays)
		}
	}
}
