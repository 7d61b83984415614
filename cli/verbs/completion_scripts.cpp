#include "cli/verbs/completion.h"

#include <algorithm>

namespace regen::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : separator) + word;
  return result;
}

std::vector<std::string> spellings(const CompletionVerb& verb) {
  std::vector<std::string> result;
  for (const CompletionOption& option : verb.options) {
    result.insert(result.end(), option.spellings.begin(), option.spellings.end());
  }
  return result;
}

std::vector<std::string> arguments_of(const CompletionVerb& verb) {
  std::vector<std::string> words = verb.words;
  if (verb.takes_graph) {
    const std::vector<std::string> models = zoo_words();
    words.insert(words.end(), models.begin(), models.end());
  }
  return words;
}

std::vector<std::string> names(const std::vector<CompletionVerb>& verbs) {
  std::vector<std::string> result;
  result.reserve(verbs.size());
  for (const CompletionVerb& verb : verbs) result.push_back(verb.name);
  return result;
}

// For text between single quotes; `escape` is how the shell writes a quote there.
std::string quotable(const std::string& text, const std::string& escape) {
  std::string result;
  for (char c : text) {
    if (c == '\'') {
      result += escape;
    } else {
      result += c;
    }
  }
  return result;
}

// One branch for each option that has words of its own: every verb gives an option the same ones.
std::string bash_value_cases(const std::vector<CompletionVerb>& verbs) {
  std::vector<std::string> seen;
  std::string cases;
  for (const CompletionVerb& verb : verbs) {
    for (const CompletionOption& option : verb.options) {
      const std::string pattern = joined(option.spellings, "|");
      if (!option.takes_value || std::find(seen.begin(), seen.end(), pattern) != seen.end()) {
        continue;
      }
      seen.push_back(pattern);
      cases += "    " + pattern + ") words=\"" + joined(option.values, " ") + "\" ;;\n";
    }
  }
  return cases;
}

std::string bash_verb_cases(const std::vector<CompletionVerb>& verbs) {
  std::string cases;
  for (const CompletionVerb& verb : verbs) {
    cases += "    " + verb.name + ")\n      options=\"" + joined(spellings(verb), " ") +
             "\"\n      arguments=\"" + joined(arguments_of(verb), " ") + "\" ;;\n";
  }
  return cases;
}

// In zsh's _arguments, brackets and colons of a description have a meaning.
std::string zsh_description(const std::string& text) {
  std::string result;
  for (char c : quotable(text, "'\\''")) {
    if (c == '[' || c == ']' || c == ':') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_option(const CompletionOption& option) {
  std::string lines;
  for (const std::string& spelling : option.spellings) {
    lines += " \\\n        '" + spelling + "[" + zsh_description(option.description) + "]";
    if (option.takes_value) {
      std::string values;
      for (const std::string& value : option.values) {
        values += (values.empty() ? "" : " ") + zsh_description(value);
      }
      lines += ":value:" + (values.empty() ? "_files" : "(" + values + ")");
    }
    lines += "'";
  }
  return lines;
}

}  // namespace

std::string bash_completion(const std::vector<CompletionVerb>& verbs) {
  return R"(# bash completion for regen: source <(regen completion bash)
_regen() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  # bash splits words at colons: put zoo:NAME together again, and offer only what is missing.
  local prefix=""
  if [[ $current == ":" ]]; then
    prefix="$previous:"; current=""
  elif [[ $previous == ":" && COMP_CWORD -ge 2 ]]; then
    prefix="${COMP_WORDS[COMP_CWORD-2]}:"
  fi
  local words="" options="" arguments="" verb="${COMP_WORDS[1]}"
  if [[ COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W ")" +
         joined(names(verbs), " ") + R"( --help --version" -- "$current"))
    return
  fi
  case "$previous" in
)" + bash_value_cases(verbs) +
         R"(    *) words="-" ;;
  esac
  if [[ -z $prefix && $words != "-" ]]; then
    if [[ -z $words ]]; then
      COMPREPLY=($(compgen -f -- "$current"))
    elif [[ $previous == "--planners" && $current == *,* ]]; then
      COMPREPLY=($(compgen -P "${current%,*}," -W "$words" -- "${current##*,}"))
    else
      COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
    return
  fi
  case "$verb" in
)" + bash_verb_cases(verbs) +
         R"(  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
    return
  fi
  local candidate
  COMPREPLY=()
  for candidate in $arguments; do
    if [[ $candidate == "$prefix$current"* ]]; then COMPREPLY+=("${candidate#"$prefix"}"); fi
  done
  if [[ -z $prefix ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}
complete -o filenames -F _regen regen
)";
}

std::string zsh_completion(const std::vector<CompletionVerb>& verbs) {
  std::string script = "#compdef regen\n# zsh completion for regen\n\n_regen() {\n";
  script += "  local -a verbs\n  verbs=(\n";
  for (const CompletionVerb& verb : verbs) {
    script += "    '" + verb.name + ":" + zsh_description(verb.description) + "'\n";
  }
  script += "  )\n  if (( CURRENT == 2 )); then\n    _describe 'verb' verbs\n    return\n  fi\n";
  script += "  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $verb in\n";
  for (const CompletionVerb& verb : verbs) {
    script += "    " + verb.name + ")\n      _arguments";
    for (const CompletionOption& option : verb.options) script += zsh_option(option);
    script += " \\\n        '*:argument:_regen_" + verb.name + "' ;;\n";
  }
  script += "  esac\n}\n";
  for (const CompletionVerb& verb : verbs) {
    script += "\n_regen_" + verb.name + "() {\n";
    const std::vector<std::string> words = arguments_of(verb);
    if (!words.empty()) script += "  compadd -- " + joined(words, " ") + "\n";
    script += "  _files\n}\n";
  }
  return script + "\n_regen \"$@\"\n";
}

std::string fish_completion(const std::vector<CompletionVerb>& verbs) {
  std::string script = "# fish completion for regen\n";
  for (const CompletionVerb& verb : verbs) {
    script += "complete -c regen -n __fish_use_subcommand -f -a " + verb.name + " -d '" +
              quotable(verb.description, "\\'") + "'\n";
  }
  for (const CompletionVerb& verb : verbs) {
    const std::string when = "complete -c regen -n '__fish_seen_subcommand_from " + verb.name + "'";
    const std::vector<std::string> words = arguments_of(verb);
    if (!words.empty()) script += when + " -a '" + joined(words, " ") + "'\n";
    for (const CompletionOption& option : verb.options) {
      script += when;
      for (const std::string& spelling : option.spellings) {
        const bool is_long = spelling.starts_with("--");
        script += (is_long ? " -l " : " -s ") + spelling.substr(is_long ? 2 : 1);
      }
      if (option.takes_value) script += " -r";
      if (!option.values.empty()) script += " -f -a '" + joined(option.values, " ") + "'";
      script += " -d '" + quotable(option.description, "\\'") + "'\n";
    }
  }
  return script;
}

}  // namespace regen::cli
