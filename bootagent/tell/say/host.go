// SPDX-License-Identifier: Apache-2.0

package say

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Whether a host has what only a layer could bring is read from files of at most
// this size; dpkg's status of a large host has 5 MB.
const maxListing = 64 << 20

// Host is a machine whose files tell what it has.
type Host struct {
	Root string // prefix of every path, for tests
}

// Cannot lists what the overlay asks of a host that caisson did not boot and that needs
// a layer, with the command that does it there. What the host has already is left out; of an
// account nobody here can say whether it is as wanted.
func (h Host) Cannot(o *spec.Overlay) ([]spec.Drift, error) {
	var drift []spec.Drift
	add := func(item, key, from, to, reason string) {
		drift = append(drift, spec.Drift{Item: item, Key: key, From: from, To: to, Action: spec.ActionCannot, Reason: "needs a layer; " + reason})
	}
	if o.Layer != "" {
		add("layer", "layer", "", o.Layer, "caisson did not boot this host: packages, accounts, profiles and permissions of the layer are not here")
	}
	var installed map[string]string
	for _, w := range o.NeedsLayer {
		switch w.Item {
		case "apt":
			if installed == nil {
				var err error
				if installed, err = h.installed(); err != nil {
					return nil, err
				}
			}
			have := installed[w.Key]
			switch {
			case w.To == "absent" && have != "":
				add(w.Item, w.Key, have, w.To, "here: apt-get purge "+w.Key)
			case w.To == "installed" && have == "":
				add(w.Item, w.Key, have, w.To, "here: apt-get install "+w.Key)
			case w.To != "absent" && w.To != "installed" && have != w.To:
				add(w.Item, w.Key, have, w.To, "here: apt-get install "+w.Key+"="+w.To)
			}
		case "uamlite":
			passwd, err := h.Read("/etc/passwd")
			if err != nil {
				return nil, err
			}
			if bytes.Contains(append([]byte("\n"), passwd...), []byte("\n"+w.Key+":")) {
				add(w.Item, w.Key, w.To, w.To, "the account is here, its password, keys and sudo stay as they are")
			} else {
				add(w.Item, w.Key, "", w.To, "here: useradd --create-home --shell /bin/bash "+w.Key)
			}
		case "apparmor":
			text, err := h.Read("/etc/apparmor.d/" + w.Key)
			if err != nil {
				return nil, err
			}
			from := ""
			if text != nil {
				from = digest.Of(text)
			}
			if from != w.To {
				add(w.Item, w.Key, from, w.To, "here: write /etc/apparmor.d/"+w.Key+", then apparmor_parser --replace it")
			}
		}
	}
	return drift, nil
}

// Read reads a file of the host, nil when there is none.
func (h Host) Read(name string) ([]byte, error) {
	data, err := ownfiles.ReadPublic(filepath.Join(h.Root, name), maxListing)
	return data, fault.But(err, fs.ErrNotExist)
}

// installed reads what dpkg(1) says is installed: versions by name.
func (h Host) installed() (map[string]string, error) {
	status, err := h.Read("/var/lib/dpkg/status")
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for stanza := range strings.SplitSeq(string(status), "\n\n") {
		var name, version string
		there := false
		for line := range strings.Lines(stanza) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "Package":
				name = value
			case "Version":
				version = value
			case "Status":
				there = strings.HasSuffix(value, " ok installed")
			}
		}
		if there {
			versions[name] = version
		}
	}
	return versions, nil
}

// ImageVersion is IMAGE_VERSION of the running root's os-release(5), "" where it has
// none: the handover of a node that caisson boots writes the layer's.
func (h Host) ImageVersion() string {
	text, err := h.Read("/etc/os-release")
	if err != nil {
		return ""
	}
	version := ""
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "IMAGE_VERSION="); ok {
			version = strings.Trim(value, `"'`) // the last one counts, as in a shell
		}
	}
	return version
}

// A status stays readable where somebody unpacked a tree, and where a program keeps its own files
// below /etc, as libvirt and lvm do.
const (
	foreignLimit  = 200 // names in all
	foreignFolder = 5   // files of a directory that are named; with more of them, it is
)

// expected are directories that a running system writes into by its nature.
var expected = []string{"/var/", "/run/", "/tmp/", "/root/.", "/home/", "/etc/.updated", "/etc/.pwd.lock",
	"/etc/resolv.conf", "/etc/security/limits.d/" + paths.Prefix}

// Foreign lists the files of the writable upper of a root that neither the handover, a
// kind of item, nor a system at its usual work wrote: what somebody changed by hand, and
// what will be gone after the next boot. A name that ends with a slash is a directory with
// many such files in it. wrote are the paths of the former two.
func Foreign(upper string, wrote []string) ([]string, error) {
	ours := plain.Map(wrote, func(name string) (string, bool) { return name, true })
	var found []string
	in := map[string]int{} // files, by directory
	err := filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fault.But(err, os.ErrNotExist)
		}
		name := strings.TrimPrefix(path, upper)
		switch {
		case name == "":
		case slices.ContainsFunc(expected, func(e string) bool { return strings.HasPrefix(name+"/", e) }):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir(), ours[name]:
		case len(found) == foreignLimit:
			return fs.SkipAll
		default:
			dir, _ := filepath.Split(name)
			if in[dir]++; in[dir] <= foreignFolder {
				found = append(found, name)
			} else if in[dir] == foreignFolder+1 {
				found = slices.DeleteFunc(found, func(file string) bool { d, _ := filepath.Split(file); return d == dir })
				found = append(found, dir)
			}
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}
