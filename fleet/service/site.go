// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
)

// FollowedSite is a site as its files have it now. Where they cannot be read the last good ones hold.
// The keys that are trusted are those of the start.
type FollowedSite struct {
	names []string
	files opened // what reading it opened last: only again has it
	lock  func(name string) (*service.Lock, error)
	now   atomic.Pointer[siteNow]
}

type siteNow struct {
	*site.Site
	trouble error // why it is not as its files are

	searching sync.Mutex
	searched  map[string]func() ([]string, error) // by the settings that were asked for: a page is asked again at each report
}

// maxSearched is how many answers are kept.
const maxSearched = 100

// Follow reads a site of the host's files, for the first time; lock reads the lock of its services.
func Follow(files fs.FS, names []string, lock func(name string) (*service.Lock, error)) (*FollowedSite, *report.Report) {
	s := &FollowedSite{names: names, files: opened{files, map[string]fs.FileInfo{}}, lock: lock}
	first, found := site.ParseAt(time.Now(), s.files, names...)
	s.now.Store(&siteNow{Site: first})
	return s, found
}

// Keep reads the site again when its files change, until ctx ends.
func (s *FollowedSite) Keep(ctx context.Context, every time.Duration, say func(format string, args ...any)) {
	for stall.Rest(ctx, every) == nil {
		s.again(say)
	}
}

// again reads the site where one of the files that it was read from is another one. The
// files that were opened decide what came of it, also where that was an error.
func (s *FollowedSite) again(say func(format string, args ...any)) {
	if !s.files.changed() {
		return
	}
	was, files := s.now.Load(), opened{s.files.FS, map[string]fs.FileInfo{}}
	read, found := site.ParseAt(time.Now(), files, s.names...)
	s.files = files
	err := found.Err()
	if err == nil && read.Name() != was.Name() {
		err = fmt.Errorf("the site is for fleet %q, this service serves %q", read.Name(), was.Name())
	}
	if err == nil {
		s.now.Store(&siteNow{Site: read})
		say("the site was read again: it has changed")
		return
	}
	if was.trouble == nil || was.trouble.Error() != err.Error() {
		say("the site has changed and cannot be read; the one read before is used: %v", err)
	}
	s.now.Store(&siteNow{Site: was.Site, trouble: err})
}

// Now returns the site as it was read last.
func (s *FollowedSite) Now() *site.Site { return s.now.Load().Site }

// Having implements [query.Site]. One search is made at a time.
func (s *FollowedSite) Having(settings []string) ([]string, error) {
	now, asked := s.now.Load(), strings.Join(settings, "\n")
	now.searching.Lock()
	defer now.searching.Unlock()
	answer := now.searched[asked]
	if answer == nil {
		answer = sync.OnceValues(func() ([]string, error) { return now.Site.Having(settings) })
		if len(now.searched) >= maxSearched || now.searched == nil {
			now.searched = map[string]func() ([]string, error){}
		}
		now.searched[asked] = answer
	}
	return answer()
}

// Trouble implements [query.Site].
func (s *FollowedSite) Trouble() error { return s.now.Load().trouble }

// ServicesLock reads the lock, each time: 'caisson services update' writes it.
func (s *FollowedSite) ServicesLock() (*service.Lock, error) {
	return s.lock(s.Now().Services().LockFile)
}

// opened are files that keep what was opened, and what it was then; nil is a file that could
// not be opened.
type opened struct {
	fs.FS
	was map[string]fs.FileInfo
}

func (o opened) Open(name string) (fs.File, error) {
	f, err := o.FS.Open(name)
	if err != nil {
		o.was[name] = nil
		return nil, err
	}
	if o.was[name], err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// changed reports whether a file is another one by now. One that is there and could not
// be opened counts as changed: its mode may be another one.
func (o opened) changed() bool {
	for name, was := range o.was {
		is, err := os.Stat(name)
		if (was == nil) != (err != nil) || was != nil && (!os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime()) || was.Size() != is.Size()) {
			return true
		}
	}
	return false
}
