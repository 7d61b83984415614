// Which requests are answered: those with the token, to this machine by name, that only ask.
#pragma once

#include <string_view>

#include "regen/share/web/http_request.h"
#include "regen/share/web/page_token.h"

namespace regen::share {

// kForbidden for everything without the token, whatever else is wrong with it. Else kOk, or what is wrong.
HttpStatus access_of(const HttpRequest& request, const PageToken& token);

// Whether a browser that sends this name can mean this machine only: a name that another machine's DNS controls could
// be made to point here, so that its page reads ours. Any port: ssh -L gives another one.
bool names_this_machine(std::string_view host);

}  // namespace regen::share
