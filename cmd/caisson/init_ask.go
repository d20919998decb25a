// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/scaffold"
)

// asks reports whether a person is there to answer.
func (a *app) asks() bool {
	f, isFile := a.err.(*os.File)
	return isFile && cli.IsTerminal(f) && cli.IsTerminal(os.Stdin) && !a.json()
}

// ask puts the questions of a new site. An empty line takes what is usual, and the
// end of the answers takes the rest of it.
func ask(in io.Reader, out io.Writer, a *scaffold.Answers) error {
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
		return cli.Usage("metal or virtual", "%q is neither metal nor virtual", kind)
	}
	a.Registry = question("Registry, HOST[:PORT]/REPOSITORY, or a directory, oci:DIR", a.Registry)
	node := scaffold.Node{Name: question("Name of the first node", scaffold.Example.Name)}
	if mac := question("MAC address of the interface that it boots from", "none"); mac != "none" {
		node.MAC = mac
	}
	a.Nodes = []scaffold.Node{node}
	return lines.Err()
}
