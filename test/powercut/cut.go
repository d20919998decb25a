// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
)

// Cut is one thing that a power cut may leave.
type Cut struct {
	After int    // how many calls were made
	Call  string // the last of them
	Kept  string // what of the unsynchronised is there
	Tree  Tree
}

func (c Cut) String() string {
	return fmt.Sprintf("cut after call %d (%s), %s", c.After, c.Call, c.Kept)
}

// choices is how many results of one cut are built at most.
const choices = 64

// fates of what a file holds beyond its last fsync.
const (
	kept = iota
	lost
	torn
	zeros
	fates
)

// fate is what happens to all that is not on the disk: a flag for each link, and a fate
// for each file that has changes.
type fate struct {
	links []bool
	files []int
}

func (f fate) String() string {
	text := "entries "
	for _, l := range f.links {
		text += map[bool]string{true: "k", false: "l"}[l]
	}
	text += ", files "
	for _, c := range f.files {
		text += string("kltz"[c])
	}
	return text
}

// Cuts returns everything that the power may leave, once each.
func (r *Recording) Cuts(seed uint64) []Cut {
	var cuts []Cut
	seen := map[[sha256.Size]byte]bool{}
	d := r.before.disk()
	dice := rand.New(rand.NewPCG(seed, 1))
	take := func(after int, call string) {
		dirty := d.dirty()
		for _, f := range fatesOf(len(d.links), len(dirty), dice) {
			t := d.after(f, dirty)
			if sum := t.sum(); !seen[sum] {
				seen[sum] = true
				cuts = append(cuts, Cut{after, call, f.String(), t})
			}
		}
	}
	take(0, "none")
	for n, c := range r.calls {
		c.do(d)
		take(n+1, c.String())
	}
	return cuts
}

// Kills returns everything that the process may leave that is killed, once each: the
// machine goes on, so all that was done is there.
func (r *Recording) Kills() []Cut {
	var kills []Cut
	seen := map[[sha256.Size]byte]bool{}
	d := r.before.disk()
	take := func(after int, call string) {
		d.syncAll()
		t := d.after(fate{}, nil)
		if sum := t.sum(); !seen[sum] {
			seen[sum] = true
			kills = append(kills, Cut{after, call, "killed", t})
		}
	}
	take(0, "none")
	for n, c := range r.calls {
		c.do(d)
		take(n+1, c.String())
	}
	return kills
}

// Least returns what there is when the power goes after the last call and all that may be
// lost is: what the process could be sure of.
func (r *Recording) Least() Tree {
	d := r.before.disk()
	for _, c := range r.calls {
		c.do(d)
	}
	dirty := d.dirty()
	return d.after(fate{make([]bool, len(d.links)), slices.Repeat([]int{lost}, len(dirty))}, dirty)
}

// dirty are the files of which not everything is on the disk.
func (d *disk) dirty() []*inode {
	return slices.DeleteFunc(slices.Clone(d.files), func(n *inode) bool { return len(n.since) == 0 })
}

// fatesOf lists the choices where there are links and files that may be lost.
func fatesOf(links, files int, dice *rand.Rand) []fate {
	total := 1
	for range links {
		total = min(total*2, choices+1)
	}
	for range files {
		total = min(total*fates, choices+1)
	}
	choose := func(of func(n int) int) fate {
		f := fate{make([]bool, links), make([]int, files)}
		for n := range links {
			f.links[n] = of(n)%2 == kept
		}
		for n := range files {
			f.files[n] = of(links+n) % fates
		}
		return f
	}
	var all []fate
	if total <= choices {
		for code := range total {
			rest := code
			f := fate{make([]bool, links), make([]int, files)}
			for n := range links {
				f.links[n], rest = rest%2 == kept, rest/2
			}
			for n := range files {
				f.files[n], rest = rest%fates, rest/fates
			}
			all = append(all, f)
		}
		return all
	}
	for _, usual := range []int{kept, lost} {
		all = append(all, choose(func(int) int { return usual }))
		for alone := range links + files {
			all = append(all, choose(func(n int) int {
				if n == alone {
					return 1 - usual
				}
				return usual
			}))
		}
	}
	for len(all) < choices {
		all = append(all, choose(func(int) int { return dice.IntN(fates) }))
	}
	return all
}

// after is the tree that a cut leaves.
func (d *disk) after(f fate, dirty []*inode) Tree {
	goes := make([]bool, len(d.links))
	for n, l := range d.links {
		goes[n] = f.links[n]
		for m := range n { // what its names were before is lost
			goes[n] = goes[n] && (goes[m] || !d.links[m].shares(l))
		}
	}
	names := map[*inode]map[string]*inode{}
	of := func(dir *inode) map[string]*inode {
		if names[dir] == nil {
			names[dir] = map[string]*inode{}
			for name, n := range dir.lasts {
				names[dir][name] = n
			}
		}
		return names[dir]
	}
	for n, l := range d.links {
		for _, e := range l {
			if !goes[n] {
				continue
			}
			if e.to == nil {
				delete(of(e.dir), e.name)
			} else {
				of(e.dir)[e.name] = e.to
			}
		}
	}
	fated := map[*inode]int{}
	for n, file := range dirty {
		fated[file] = f.files[n]
	}
	t := Tree{}
	var walk func(at string, n *inode)
	walk = func(at string, n *inode) {
		switch {
		case n.names != nil:
			t[at] = Entry{Mode: n.mode}
			for name, child := range of(n) {
				walk(path.Join(at, name), child)
			}
		case n.mode&fs.ModeSymlink != 0:
			t[at] = Entry{Mode: n.mode, Target: n.target}
		default:
			data, mode := n.fated(fated[n])
			t[at] = Entry{Mode: mode, Data: data}
		}
	}
	walk(".", d.root)
	return t
}

// fated is a file after a cut.
func (n *inode) fated(f int) ([]byte, fs.FileMode) {
	switch f {
	case lost:
		return n.now(0)
	case torn:
		half := len(n.since) / 2
		data, mode := n.now(half)
		c := n.since[half]
		if c.mod || c.size >= 0 {
			return data, mode
		}
		c.data = c.data[:len(c.data)/2]
		return c.of(data, mode)
	case zeros:
		data, mode := n.now(len(n.since))
		have := min(len(n.data), len(data))
		for _, c := range n.since {
			if c.size >= 0 {
				have = min(have, int(c.size))
			}
		}
		copy(data, n.data[:have])
		clear(data[have:])
		return data, mode
	}
	return n.now(len(n.since))
}
