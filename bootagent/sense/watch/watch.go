// SPDX-License-Identifier: Apache-2.0

// Package watch waits for what the kernel and systemd tell of changes on a node: hints
// that a kind of settings may be others now, and for kernel parameters also by whom.
//
// A hint only leads to an early look at that kind. The look of every minute at everything
// stays the truth, for there is no kind whose every change raises an event; the table in
// package items says which kind has which source, and docs/items.md what each does not see.
// Hints are gathered for a moment, so that a burst is one; who looks decides how soon the
// next one may come. What cannot be watched on a machine is said once and is left to the
// minute's look.
//
// Only bootagent/program imports it: the service watches, verbs do not.
package watch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// gather is how long hints are collected after the first one: a change is often more
// than one event, and the kernel restarts a write that has to wait for a lock.
const gather = 20 * time.Millisecond

// source is something with a descriptor that becomes readable.
type source interface {
	fd() int
	// drain takes what is there, without waiting, and returns the kinds that may be
	// others now; nil and true are all: something was lost.
	drain() (kinds []string, lost bool)
	close()
}

// Watch is a running watch.
type Watch struct {
	root string // prefix of paths, for tests; the kernel's own files are not watched then
	say  func(format string, args ...any)

	systemd bool // it runs
	kinds   []item.Hint

	mutex   sync.Mutex        // of what follows up to said
	sources map[string]source // by name, those that work
	units   *units
	news    news
	rivals  map[string]rival
	said    map[string]string

	epoll, stop int
	done        chan struct{}
}

// news holds what sources have told since it was taken last, under the mutex of the watch.
type news struct {
	hinted  map[string]bool
	all     bool
	refused []spec.RefusedWrite
	ready   chan struct{}
}

// Start begins to watch; what is decided by [Watch.Follow]. The caller closes it.
func Start(root string, systemd bool, kinds []item.Hint, say func(format string, args ...any)) (*Watch, error) {
	w := &Watch{root: root, systemd: systemd, kinds: kinds, say: say, sources: map[string]source{},
		news: news{hinted: map[string]bool{}, ready: make(chan struct{}, 1)}, rivals: map[string]rival{}, said: map[string]string{},
		done: make(chan struct{})}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, errors.Join(err, unix.Close(w.epoll))
	}
	err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, w.stop, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(w.stop)})
	if err != nil {
		return nil, errors.Join(err, unix.Close(w.epoll), unix.Close(w.stop))
	}
	w.open(item.Inotify, newInotify)
	if root == "" {
		w.open(item.Mountinfo, newTable(item.Mountinfo, "/proc/self/mountinfo"))
		w.open(item.Swaps, newTable(item.Swaps, "/proc/swaps"))
		w.open(item.Rtnetlink, newRtnetlink)
		w.open(item.Ethtool, newEthtool)
		w.open(item.Uevent, newUevent)
	}
	go w.loop()
	return w, nil
}

// open makes a source part of the watch. One that this machine lacks is said once.
func (w *Watch) open(name string, begin func(*Watch) (source, error)) {
	s, err := begin(w)
	if err == nil {
		events := uint32(unix.EPOLLIN)
		if _, ok := s.(table); ok {
			events = unix.EPOLLPRI
		}
		if err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, s.fd(), &unix.EpollEvent{Events: events, Fd: int32(s.fd())}); err != nil {
			s.close()
		}
	}
	if w.sayOnce(name, err); err == nil {
		w.sources[name] = s
	}
}

// drop ends a source.
func (w *Watch) drop(name string) {
	if s, ok := w.sources[name]; ok {
		delete(w.sources, name)
		_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, s.fd(), nil) // closing it does the same
		s.close()
	}
}

func (w *Watch) sayOnce(name string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("no hints from %s, changes are found within a minute: %v", name, err)
	}
	if w.said[name] != text && text != "" {
		w.say("%s", text)
	}
	w.said[name] = text
}

func (w *Watch) loop() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 8)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // of a descriptor that is not one
			w.say("watch: %v", err)
			return
		}
		for _, e := range events[:n] {
			if int(e.Fd) == w.stop {
				return
			}
			w.drain(int(e.Fd))
		}
		time.Sleep(gather) // Close waits for it
	}
}

func (w *Watch) drain(fd int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, s := range w.sources {
		if s.fd() == fd {
			known := len(w.news.refused)
			kinds, lost := s.drain()
			w.news.hint(kinds, lost, len(w.news.refused) > known)
			return
		}
	}
}

// hint notes kinds to look at, and that there may be news of writes that were refused.
func (n *news) hint(kinds []string, lost, refused bool) {
	for _, k := range kinds {
		n.hinted[k] = true
	}
	n.all = n.all || lost
	if len(kinds) > 0 || lost || refused {
		select {
		case n.ready <- struct{}{}:
		default: // it was said, and nobody has come yet
		}
	}
}

// Ready has a value when there are hints.
func (w *Watch) Ready() <-chan struct{} { return w.news.ready }

// Hints holds the hints that came in since they were taken last.
type Hints struct {
	Kinds   []string            // to look at, sorted; empty where only writes were refused
	All     bool                // something was lost: look at everything
	Refused []spec.RefusedWrite // of protected parameters
}

// Take returns the hints and forgets them.
func (w *Watch) Take() Hints {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := &w.news
	h := Hints{Kinds: slices.Sorted(maps.Keys(n.hinted)), All: n.all, Refused: n.refused}
	clear(n.hinted)
	n.all, n.refused = false, nil
	return h
}

// Follow has the watch be of what an overlay asks for, and of which parameters the kernel
// refuses writes. It is called after each look, and finds again what was deleted and made
// again.
func (w *Watch) Follow(o *spec.Overlay, protected []string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if i, ok := w.sources[item.Inotify].(*inotify); ok {
		w.sayOnce(item.Inotify, i.follow(w.places(&o.Items)))
	}
	if w.root == "" {
		w.followSysctl(o, protected)
		w.followUnits(o)
	}
}

// Of names the sources that tell of a kind on this machine, nil for none.
func (w *Watch) Of(kind string) (names []string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, k := range w.kinds {
		for _, name := range k.Sources {
			_, works := w.sources[name]
			if k.Kind == kind && (works || name == item.DBus && w.units != nil) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Close ends the watch. What is protected stays so.
func (w *Watch) Close() error {
	_, err := unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if err == nil {
		<-w.done
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, name := range slices.Collect(maps.Keys(w.sources)) {
		w.drop(name)
	}
	w.units.close()
	return errors.Join(err, unix.Close(w.epoll), unix.Close(w.stop))
}

// table is a file of procfs that is ready when what it lists changes. It is not an os.File:
// the runtime would wait for it, too, and one who asks takes the news from the other.
type table struct {
	number int
	kinds  []string
}

func newTable(name, path string) func(*Watch) (source, error) {
	return func(w *Watch) (source, error) {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return table{fd, w.kindsOf(name)}, err
	}
}

func (t table) fd() int                 { return t.number }
func (t table) drain() ([]string, bool) { return t.kinds, false } // asking whether it is ready has taken it
func (t table) close()                  { unix.Close(t.number) }  // only read
