// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Answers holds the few values that decide whether the machines of a new site boot, and writes its first
// text: the kernel and the firmware that goes with it, the registry, the nodes. [UsualAnswers] has those
// that hold when nobody says otherwise. It touches no file; `caisson init` puts the text beside keys.
type Answers struct {
	Name     string // of the fleet
	Registry string // a REF
	Suite    string // Debian's
	Kernel   string // a package
	Nodes    []NodeAnswer
}

// NodeAnswer is a machine; MAC may be empty.
type NodeAnswer struct{ Name, MAC string }

// UsualAnswers are the answers for a fleet of real machines, published to a directory.
func UsualAnswers(name string) Answers {
	return Answers{Name: name, Registry: "oci:./out", Suite: "trixie", Kernel: "linux-image-amd64"}
}

// Example is the node of a site that names none.
var Example = NodeAnswer{"node1", "52:54:00:00:00:01"}

// ParseNodeAnswer reads NAME or NAME=MAC.
func ParseNodeAnswer(text string) NodeAnswer {
	name, mac, _ := strings.Cut(text, "=")
	return NodeAnswer{name, mac}
}

// Metal reports whether the kernel is one for real machines.
func (a Answers) Metal() bool { return !strings.Contains(a.Kernel, "-cloud-") }

// Firmware is a package and the hardware that asks for what is in it.
type Firmware struct{ Name, For string }

// firmware lists the files that drivers of usual servers ask for, from Debian's
// non-free-firmware: packages of 13 MB, unpacked 54.
var firmware = []Firmware{
	{"firmware-bnx2", "Broadcom NetXtreme II"},
	{"firmware-bnx2x", "Broadcom NetXtreme II 10 GbE"},
	{"firmware-intel-misc", "Intel E810"},
	{"firmware-misc-nonfree", "Broadcom tg3, Chelsio"},
	{"firmware-qlogic", "QLogic network and Fibre Channel"},
	{"firmware-realtek", "Realtek network"},
}

// Firmware lists the packages for a.
func (a Answers) Firmware() []Firmware {
	return slices.DeleteFunc(slices.Clone(firmware), func(f Firmware) bool {
		return a.Suite == "bookworm" && f.Name == "firmware-intel-misc" // it is in firmware-misc-nonfree there
	})
}

//go:embed first.yaml.tmpl
var firstText string

var firstPage = template.Must(template.New("site.yaml").Funcs(template.FuncMap{"quote": quote}).Parse(firstText))

// bare is text that YAML takes for itself.
var bare = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_./:@-]*[A-Za-z0-9_/])?$`)

// quote writes a scalar as a person would.
func quote(s string) string {
	if bare.MatchString(s) && !strings.EqualFold(s, "null") {
		return s
	}
	return strconv.Quote(s)
}

// Check refuses what no site can have.
func (a Answers) Check() error {
	problems := []error{rules.SourceWord(a.Suite), rules.Package(a.Kernel)}
	for _, n := range a.Nodes {
		problems = append(problems, rules.Node(n.Name))
		if n.MAC != "" {
			_, err := inventory.ParseMAC(n.MAC)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// Site returns the text of site.yaml.
func (a Answers) Site() (string, error) {
	if err := a.Check(); err != nil {
		return "", err
	}
	if a.Nodes == nil {
		a.Nodes = []NodeAnswer{Example}
	}
	var b strings.Builder
	err := firstPage.Execute(&b, a)
	return b.String(), err
}

var notFleetName = regexp.MustCompile(`[^a-z0-9]+`)

// FleetName makes a fleet's name of a directory's.
func FleetName(dir string) string {
	name := strings.Trim(notFleetName.ReplaceAllString(strings.ToLower(dir), "-"), "-")
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-")
	}
	return cmp.Or(name, "my-fleet")
}

// Ask puts the questions of a new site. An empty line takes what is usual, and the
// end of the answers takes the rest of it.
func (a *Answers) Ask(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	question := func(text, usual string) string {
		fmt.Fprintf(out, "%s [%s]: ", text, usual)
		if lines.Scan() {
			if answer := strings.TrimSpace(lines.Text()); answer != "" {
				return answer
			}
		}
		return usual
	}
	switch kind := question("Are the nodes metal or virtual machines", "metal"); {
	case strings.HasPrefix("virtual machines", kind):
		a.Kernel = "linux-image-cloud-amd64"
	case kind != "metal":
		return report.Invalidf("metal or virtual", "%q is neither metal nor virtual", kind)
	}
	a.Registry = question("Registry, HOST[:PORT]/REPOSITORY, or a directory, oci:DIR", a.Registry)
	node := NodeAnswer{Name: question("Name of the first node", Example.Name)}
	if mac := question("MAC address of the interface that it boots from", "none"); mac != "none" {
		node.MAC = mac
	}
	a.Nodes = []NodeAnswer{node}
	return lines.Err()
}
