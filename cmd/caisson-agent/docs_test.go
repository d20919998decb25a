// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shellFlag finds the flags in a verb's help.
var shellFlag = regexp.MustCompile(`(?m)^  (--?[\w-]+) `)

// TestCommandLineIsDocumented holds docs/cli/caisson-agent.md, the manual page and
// the completion of bash to the verbs' own help: they are made here, so that the agent
// need not carry them. CAISSON_UPDATE=1 rewrites them.
func TestCommandLineIsDocumented(t *testing.T) {
	said := func(args ...string) string {
		var out bytes.Buffer
		if err := dispatch(context.Background(), &app{out: &out, err: &out}, args); err != nil {
			t.Fatal(args, err)
		}
		return out.String()
	}
	page := "## caisson-agent\n\n```\n" + said("help") + "```\n"
	man := ".TH CAISSON-AGENT 8 \"\" caisson caisson\n.SH NAME\ncaisson-agent \\- make a node what its signed overlay says\n.SH SYNOPSIS\n.B caisson-agent\nVERB [flags]\n.SH DESCRIPTION\n" +
		"It is /init of the loader, then a systemd service; the verbs are for who is logged in to a node.\n.SH VERBS\n"
	var verbNames, bash []string
	for _, v := range verbs() {
		help := said(v.name, "--help")
		page += "\n### caisson-agent " + v.name + "\n\n```\n" + help + "```\n"
		man += ".SS " + v.name + "\n.nf\n" + roff(help) + ".fi\n"
		var flags []string
		for _, m := range shellFlag.FindAllStringSubmatch(help, -1) {
			flags = append(flags, m[1])
		}
		verbNames = append(verbNames, v.name)
		bash = append(bash, fmt.Sprintf("	%s) words=%q ;;", v.name, strings.Join(flags, " ")))
	}
	man += ".SH SEE ALSO\n.BR caisson (1)\n"
	function := "_caisson_agent() {\n	local cur=${COMP_WORDS[COMP_CWORD]} words=\n	case ${COMP_WORDS[COMP_CWORD-1]} in\n	-o) words='text json' ;;\n	*) case ${COMP_WORDS[1]} in\n" +
		strings.Join(bash, "\n") + "\n	esac ;;\n	esac\n	[ \"$COMP_CWORD\" -gt 1 ] || words='" + strings.Join(verbNames, " ") + "'\n" +
		"	mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n	[ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n}\ncomplete -F _caisson_agent caisson-agent\n"
	for name, text := range map[string]string{
		"../../docs/cli/caisson-agent.md":    page,
		"../../packaging/caisson-agent.8":    man,
		"../../packaging/caisson-agent.bash": "# bash completion for caisson-agent; made by a test from its help\n" + function,
	} {
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("%s is not what the help says (%v); run: CAISSON_UPDATE=1 go test ./cmd/caisson-agent -run TestCommandLine", name, err)
		}
	}
}

// roff escapes what troff(1) would take for itself.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return regexp.MustCompile(`(?m)^([.'])`).ReplaceAllString(text, `\&$1`)
}
