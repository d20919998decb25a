// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/fleet/commits"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// siteEvery is how often the fleet's service looks whether its site has changed.
const siteEvery = 5 * time.Second

// servedSite is the site of the fleet's service: labels, sets and services as its files
// have them now. Where they cannot be read the last good ones hold. The keys that are
// trusted are those of the start.
type servedSite struct {
	names []string
	files openedFiles // what reading it opened last: only follow has it
	now   atomic.Pointer[siteNow]
}

type siteNow struct {
	*site.Site
	trouble error // why it is not as its files are

	searching sync.Mutex
	searched  map[string]having // by the settings that were asked for: a page is asked again at each report
}

// having holds the answer to a search.
type having struct {
	names []string
	err   error
}

// maxSearched is how many answers are kept.
const maxSearched = 100

// serveSite reads a site that can be followed.
func (a *app) serveSite(names []string) (*servedSite, error) {
	s := &servedSite{names: names, files: openedFiles{}}
	first, err := a.good(parseSite(s.files, time.Now(), names...))
	s.now.Store(&siteNow{Site: first})
	return s, err
}

// follow reads the site again when its files change, until ctx ends.
func (s *servedSite) follow(ctx context.Context, every time.Duration, say func(format string, args ...any)) {
	if slices.Contains(s.names, "-") {
		return // standard input is read once
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.again(say)
		}
	}
}

// again reads the site where one of the files that it was read from is another one. The
// files that were opened decide what came of it, also where that was an error.
func (s *servedSite) again(say func(format string, args ...any)) {
	if !s.files.changed() {
		return
	}
	was, files := s.now.Load(), openedFiles{}
	read, found := parseSite(files, time.Now(), s.names...)
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

func (s *servedSite) Find(labels []string, set string) ([]string, error) {
	return s.now.Load().Groups().Find(labels, set)
}

// Having implements query.Site. One search is made at a time.
func (s *servedSite) Having(settings []string) ([]string, error) {
	now, asked := s.now.Load(), strings.Join(settings, "\n")
	now.searching.Lock()
	defer now.searching.Unlock()
	h, known := now.searched[asked]
	if !known {
		h.names, h.err = now.Site.Having(settings)
		if len(now.searched) >= maxSearched || now.searched == nil {
			now.searched = map[string]having{}
		}
		now.searched[asked] = h
	}
	return h.names, h.err
}

func (s *servedSite) Where(node string) (labels, sets []string) {
	return s.now.Load().Groups().Where(node)
}
func (s *servedSite) Labels() []string            { return s.now.Load().Groups().Labels() }
func (s *servedSite) Sets() []string              { return s.now.Load().Groups().Sets() }
func (s *servedSite) Services() []service.Service { return s.now.Load().Services().List }
func (s *servedSite) Trouble() error              { return s.now.Load().trouble }

// ServicesLock reads the lock, each time: 'caisson services update' writes it.
func (s *servedSite) ServicesLock() (*service.Lock, error) {
	return readServicesLock(s.now.Load().Services().LockFile)
}

// readServicesLock reads the lock of a site's services; without a file it is empty.
func readServicesLock(name string) (*service.Lock, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return service.NewLock(), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, service.MaxLock+1))
	if err != nil {
		return nil, err
	}
	l, err := service.ParseLock(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// openedFiles are host files that keep what was opened, and what it was then; nil is a
// file that could not be opened.
type openedFiles map[string]fs.FileInfo

func (o openedFiles) Open(name string) (fs.File, error) {
	f, err := hostFiles{}.Open(name)
	if err != nil {
		o[name] = nil
		return nil, err
	}
	if name == stdin {
		return f, nil
	}
	if o[name], err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// changed reports whether a file is another one by now. One that is there and could not
// be opened counts as changed: its mode may be another one.
func (o openedFiles) changed() bool {
	for name, was := range o {
		is, err := os.Stat(name)
		if (was == nil) != (err != nil) {
			return true
		}
		if was != nil && (!os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime()) || was.Size() != is.Size()) {
			return true
		}
	}
	return false
}

// gitEvery is how often the fleet's service asks a server of git about one service.
const gitEvery = 5 * time.Minute

// askGit returns who asks git what the services of a site follow now, as 'services diff'
// does.
func (a *app) askGit(cache string) *commits.Heads {
	return &commits.Heads{Every: gitEvery, Wait: content.Glance.Time, Ask: func(ctx context.Context, s *service.Service) (string, error) {
		at, err := cacheDir(cache)
		if err != nil {
			return "", err
		}
		head, err := (&content.Source{Cache: at, Limits: content.Glance, Now: now(), Say: a.say}).Head(ctx, s)
		return head.ID, err
	}}
}

// keepAsking asks git until ctx ends.
func keepAsking(ctx context.Context, asked *commits.Heads, site *servedSite) {
	tick := time.NewTicker(siteEvery)
	defer tick.Stop()
	for {
		asked.Look(ctx, site.Services(), time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
