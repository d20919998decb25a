// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci"
)

// The pictures of the README and of the concepts can be read, have words for those who cannot see them,
// keep to their frame, and name repositories and tags as they are.
func TestPictures(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	concepts, err := os.ReadFile("../../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string][]string{
		"artifacts.svg": {oci.RepoLayer + ":VERSION", oci.RepoLayer + ":" + release.Current, oci.RepoLayer + ":" + release.KeepTag("sha256:…"), oci.RepoNode + ":NAME",
			oci.RepoFleet + ":current", oci.RepoFleet + ":index", "site.cpio", "boot.ipxe"},
		"boot.svg": {"overlay", "kexec", "switch_root", "state disk", oci.RepoNode + ":NAME", oci.RepoFleet + ":current"},
		"life.svg": {"boot", "apply", "prove", "follow", "swap"},
		"wave.svg": {"plan", "soak", "halt"},
	} {
		data, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var picture struct {
			ViewBox string `xml:"viewBox,attr"`
			Title   string `xml:"title"`
			Desc    string `xml:"desc"`
			Texts   []struct {
				X    float64 `xml:"x,attr"`
				Y    float64 `xml:"y,attr"`
				Text string  `xml:",chardata"`
			} `xml:"text"`
		}
		if err := xml.Unmarshal(data, &picture); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var all strings.Builder
		for _, text := range picture.Texts {
			all.WriteString(text.Text + "\n")
			if text.X < 0 || text.X > 1010 || text.Y < 0 || text.Y > 460 {
				t.Errorf("%s: %q is out of the frame", name, text.Text)
			}
		}
		for _, want := range says {
			if !strings.Contains(all.String(), want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		if picture.Title == "" || len(picture.Desc) < 100 || picture.ViewBox == "" || !strings.Contains(string(readme), "](docs/"+name+")") && !strings.Contains(string(concepts), "]("+name+")") {
			t.Errorf("%s: title, description, frame or its place on a page is missing", name)
		}
	}
}
